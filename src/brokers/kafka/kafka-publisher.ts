import {
  ABORTED,
  createPublisher,
  ENVELOPE_OPTIONS,
  EncodedAhead,
  failureOf,
  integer,
  LATE,
  milliseconds,
  optional,
  orderOf,
  readOptions,
  required,
  settledWithin,
  type Batch,
  type EnvelopeOptions,
  type OptionSpec,
  type OptionSpecs,
  type SettingsOf,
} from "../../adapter/index.ts";
import { NOT_TRIED } from "../../core/batch-results.ts";
import type { Publisher, PublishResult } from "../../core/contracts.ts";
import { errorCode, PermanentError, UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { requireFunction } from "../../core/options.ts";
import { KafkaBatch } from "./kafka-batch.ts";
import { requireProducer, type KafkaCompression, type KafkaProducer } from "./kafka-client.ts";
import { encodeMessage, type EncodedMessage } from "./kafka-envelope.ts";
import { brokenTopics, type Failure } from "./kafka-errors.ts";
import { DECLARE, partitionsOf, type DeclareTopics } from "./kafka-topics.ts";
import { mutexOf, type Mutex } from "./mutex.ts";
import { partitionOf } from "./partition.ts";

export interface KafkaPublisherOptions extends EnvelopeOptions {
  /** A producer of its own: `new Producer({ clientId, bootstrapBrokers, idempotent: true, retries: 3, retryDelay: 100 })`. It stays yours to close. */
  producer: KafkaProducer;
  /** Default: the stream. */
  topic?: (message: Message) => string;
  /** Default: what the producer is set to. */
  compression?: KafkaCompression;
  /** Creates topics that are missing. Without it a message for a missing topic is rejected. */
  declare?: DeclareTopics;
  /** What one partition gets at once; no more than max.message.bytes of its topic. Default 900,000. */
  maxBatchBytes?: number;
  /** How long a confirm may take, retries of the producer included. Default 30 s. */
  timeoutMs?: number;
}

const TOPIC: OptionSpec<(message: Message) => string> = {
  read(of, name, value) {
    const fix = "Pass topic: (message) => name, or leave it out to publish to the topic named like the stream";
    requireFunction(of, name, value, fix);
    return value as (message: Message) => string;
  },
};

/** Checked by the client. */
const COMPRESSION: OptionSpec<KafkaCompression | undefined> = {
  read: (_, __, value) => value as KafkaCompression | undefined,
};

const OPTIONS = {
  ...ENVELOPE_OPTIONS,
  producer: required(requireProducer),
  topic: optional(TOPIC),
  compression: COMPRESSION,
  declare: optional(DECLARE),
  maxBatchBytes: integer(1024, Number.MAX_SAFE_INTEGER, 900_000),
  timeoutMs: milliseconds(30_000),
} satisfies OptionSpecs<KafkaPublisherOptions>;

type Settings = SettingsOf<typeof OPTIONS>;

/** Publishes to Kafka: idempotent, acknowledged by all replicas in sync, the key to the partition that any client would choose. */
export function createKafkaPublisher(options: KafkaPublisherOptions): Publisher {
  const sender = new KafkaSender(readOptions("createKafkaPublisher", options, OPTIONS));
  return createPublisher({
    system: "kafka",
    // A record batch is taken or refused as a whole, and nothing follows a failed one: see KafkaBatch.
    keepsKeyOrder: true,
    publish: (batch) => sender.publish(batch),
    prepare: (messages) => sender.prepare(messages),
    close: () => sender.close(),
  });
}

class KafkaSender {
  readonly #settings: Settings;
  /**
   * One batch at a time: sequence numbers of a producer are only right while nothing is in flight beside what fails,
   * and what the client may still be sending must not be followed by anything.
   */
  readonly #mutex: Mutex;
  readonly #ahead: EncodedAhead<Addressed>;
  /** Topics that were there when they were last looked at. */
  readonly #seen = new Set<string>();
  #spread = 0;

  constructor(settings: Settings) {
    const { producer, envelope, source } = settings;
    this.#settings = settings;
    this.#mutex = mutexOf(producer);
    this.#ahead = new EncodedAhead((message) => {
      const topic = this.#topicOf(message);
      return typeof topic === "string"
        ? { topic, encoded: encodeMessage(message, topic, envelope, source) }
        : { topic };
    });
  }

  prepare(messages: readonly Message[]): void {
    this.#ahead.prepare(messages);
  }

  async publish(batch: Batch): Promise<readonly PublishResult[]> {
    const { messages, signal } = batch;
    const { timeoutMs } = this.#settings;
    const turn = await this.#mutex.take(timeoutMs, signal);
    if (turn === LATE) throw notAnswering(timeoutMs);
    if (turn === ABORTED) return messages.map(() => NOT_TRIED);
    let sending: KafkaBatch | undefined;
    try {
      const placed = await settledWithin(this.#place(batch), timeoutMs, signal);
      if (placed === LATE) throw notAnswering(timeoutMs);
      if (placed === ABORTED) return messages.map(() => NOT_TRIED);
      sending = placed;
      turn.alive();
      const running = sending.run(turn.alive);
      // The client writes in turns of its own.
      setImmediate(() => this.#ahead.whileWaiting());
      return await running;
    } finally {
      // The client may still be sending what is no longer waited for: nothing may follow before it is through with that.
      void (sending?.idle ?? Promise.resolve()).then(turn.end);
    }
  }

  /** The client may still be busy with what was given up: the application should not close it before. */
  async close(): Promise<void> {
    const turn = await this.#mutex.take(CLOSE_MS);
    if (turn !== LATE && turn !== ABORTED) turn.end();
  }

  async #place(batch: Batch): Promise<KafkaBatch> {
    const { messages } = batch;
    const sending = new KafkaBatch(batch, this.#settings);
    const encodedAt = this.#ahead.of(messages);
    const addressed = messages.map((_, index) => encodedAt(index));
    const counts = await this.#partitions(new Set(addressed.map(({ topic }) => topic)));
    const spread = this.#spread++;
    const places = new Map<string, string>();
    for (let index = 0; index < messages.length; index++) {
      const { topic, encoded } = addressed[index]!;
      const count = counts.get(topic)!;
      if (typeof topic !== "string" || encoded === undefined || typeof count !== "number") {
        sending.refuse(index, count as Failure);
        continue;
      }
      const { key, value, headers, size } = encoded;
      const partition = key === undefined ? spread % count : partitionOf(key, count);
      const record =
        key === undefined ? { topic, partition, value, headers } : { topic, partition, key, value, headers };
      // Only a topic function can send one key to two places.
      const order = this.#settings.topic === undefined ? undefined : orderOf(messages[index]!);
      if (order !== undefined) {
        if ((places.get(order) ?? topic) !== topic) {
          sending.barrier();
          places.clear();
        }
        places.set(order, topic);
      }
      sending.add({ index, record, size });
    }
    return sending;
  }

  #topicOf(message: Message): string | Failure {
    const { topic: topicOf } = this.#settings;
    if (topicOf === undefined) return message.stream;
    try {
      const topic: unknown = topicOf(message);
      if (typeof topic === "string" && topic !== "") return topic;
      throw new PermanentError(`The topic function gave ${String(topic)} for ${message.stream}`, {
        field: "topic",
        fix: "Return the name of a topic",
      });
    } catch (error) {
      return failureOf(error);
    }
  }

  /** Partitions by topic, or why there are none. Throws when no broker answers. */
  async #partitions(topics: ReadonlySet<string | Failure>): Promise<Map<string | Failure, number | Failure>> {
    const { producer, declare } = this.#settings;
    const counts = new Map<string | Failure, number | Failure>();
    for (const topic of topics) {
      if (typeof topic !== "string") {
        counts.set(topic, topic);
        continue;
      }
      try {
        counts.set(topic, await partitionsOf(topic, producer, declare));
        this.#seen.add(topic);
      } catch (error) {
        counts.set(topic, this.#failureOf(topic, error));
      }
    }
    return counts;
  }

  /** What a topic without an answer means for its messages. Throws when it is not the topic's fault. */
  #failureOf(topic: string, error: unknown): Failure {
    const broken = brokenTopics(error).get(topic);
    if (broken !== undefined) return { status: "unavailable", error: broken, route: topic };
    if (errorCode(error) !== "permanent") throw error;
    // One that was there a moment ago may come back; a name that was never right will not.
    return this.#seen.has(topic) ? { status: "unavailable", error, route: topic } : { status: "rejected", error };
  }
}

/** A message with its topic, or with why it has none. */
interface Addressed {
  readonly topic: string | Failure;
  readonly encoded?: EncodedMessage;
}

const CLOSE_MS = 5000;

function notAnswering(ms: number): UnavailableError {
  return new UnavailableError(`Kafka has not answered for ${ms} ms`);
}
