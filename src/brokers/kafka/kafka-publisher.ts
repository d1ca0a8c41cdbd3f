import type { Publisher, PublishResult } from "../../core/contracts.ts";
import { errorCode, PermanentError, UnavailableError } from "../../core/errors.ts";
import type { Message } from "../../core/message.ts";
import { rejectUnknownOptions, requireFunction, requireInteger } from "../../core/options.ts";
import { failureOf } from "../../core/publish-each.ts";
import { requireEnvelope, type EnvelopeFormat } from "../shared/envelope.ts";
import { SealedAhead } from "../shared/sealed-ahead.ts";
import { requireProducer, type KafkaCompression, type KafkaProducer } from "./kafka-client.ts";
import { brokenTopics, type Failure } from "./kafka-errors.ts";
import { sealMessage, type SealedMessage } from "./kafka-record.ts";
import { checkDeclare, partitionsOf, type DeclareTopics } from "./kafka-topics.ts";
import { partitionOf } from "./partition.ts";
import { orderOf, ProduceBatch, type ProduceSettings } from "./produce-batch.ts";
import { settledWithin, turnsOf, type Turns } from "./turns.ts";

export interface KafkaPublisherOptions {
  /** A producer of its own: `new Producer({ clientId, bootstrapBrokers, idempotent: true, retries: 3, retryDelay: 100 })`. */
  producer: KafkaProducer;
  /** Default: the stream. */
  topic?: (message: Message) => string;
  /** Default "native": txbox-* headers. "cloudevents": CloudEvents 1.0, binary mode. */
  envelope?: EnvelopeFormat;
  /** The `source` of CloudEvents. Default: `/<stream>`. */
  source?: string;
  /** Default: what the producer is set to. */
  compression?: KafkaCompression;
  /** Creates topics that are missing. Without it a message for a missing topic is rejected. */
  declare?: DeclareTopics;
  /** What one partition gets at once; no more than max.message.bytes of its topic. Default 900,000. */
  maxBatchBytes?: number;
  /** How long a confirm may take, retries of the producer included. Default 30 s. */
  timeoutMs?: number;
}

/** Publishes to Kafka: idempotent, acknowledged by all replicas in sync, the key to the partition that any client would choose. */
export function createKafkaPublisher(options: KafkaPublisherOptions): Publisher {
  checkOptions(options);
  return new KafkaPublisher(options);
}

class KafkaPublisher implements Publisher {
  /** A record batch is taken or refused as a whole, and nothing follows a failed one: see ProduceBatch. */
  readonly keepsKeyOrder = true;
  readonly #options: KafkaPublisherOptions;
  readonly #settings: ProduceSettings;
  /**
   * One batch at a time: sequence numbers of a producer are only right while nothing is in flight beside what fails,
   * and what the client may still be sending must not be followed by anything.
   */
  readonly #turns: Turns;
  readonly #ahead: SealedAhead<Addressed>;
  /** Topics that were there when they were last looked at. */
  readonly #seen = new Set<string>();
  #spread = 0;
  #closed = false;

  constructor(options: KafkaPublisherOptions) {
    const { producer, compression, maxBatchBytes = 900_000, timeoutMs = 30_000 } = options;
    this.#options = options;
    this.#turns = turnsOf(producer);
    this.#settings = { producer, compression, maxBatchBytes, timeoutMs };
    const { envelope = "native", source } = options;
    this.#ahead = new SealedAhead((message) => {
      const topic = this.#topicOf(message);
      return typeof topic === "string" ? { topic, sealed: sealMessage(message, topic, envelope, source) } : { topic };
    });
  }

  prepare(messages: readonly Message[]): void {
    this.#ahead.prepare(messages);
  }

  async publish(messages: readonly Message[], signal: AbortSignal): Promise<readonly PublishResult[]> {
    if (messages.length === 0) return [];
    if (this.#closed) throw closed();
    const done = await this.#turns.take(this.#settings.timeoutMs, signal);
    if (done === "late") throw notAnswering(this.#settings.timeoutMs);
    if (done === "aborted") return messages.map(() => NOT_TRIED);
    let batch: ProduceBatch | "late" | "aborted" = "aborted";
    try {
      if (this.#closed) throw closed();
      batch = await settledWithin(this.#place(messages, signal), this.#settings.timeoutMs, signal);
      if (batch === "late") throw notAnswering(this.#settings.timeoutMs);
      if (batch === "aborted" || signal.aborted) return messages.map(() => NOT_TRIED);
      const running = batch.run();
      // The client writes in turns of its own.
      setImmediate(() => this.#ahead.whileWaiting());
      return await running;
    } finally {
      void endWhenIdle(batch, done);
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#turns.take(CLOSE_MS, new AbortController().signal);
    await this.#settings.producer.close();
  }

  async #place(messages: readonly Message[], signal: AbortSignal): Promise<ProduceBatch> {
    const batch = new ProduceBatch(messages.length, this.#settings, signal);
    const sealedAt = this.#ahead.of(messages);
    const addressed = messages.map((_, index) => sealedAt(index));
    const counts = await this.#partitions(new Set(addressed.map(({ topic }) => topic)));
    const spread = this.#spread++;
    const places = new Map<string, string>();
    for (let index = 0; index < messages.length; index++) {
      const message = messages[index]!;
      const { topic, sealed } = addressed[index]!;
      const count = counts.get(topic)!;
      if (typeof topic !== "string" || sealed === undefined || typeof count !== "number") {
        batch.refuse(index, message, count as Failure);
        continue;
      }
      const { key, value, headers, size } = sealed;
      const partition = key === undefined ? spread % count : partitionOf(key, count);
      const record =
        key === undefined ? { topic, partition, value, headers } : { topic, partition, key, value, headers };
      // Only a topic function can send one key to two places.
      const order = this.#options.topic === undefined ? undefined : orderOf(message);
      if (order !== undefined) {
        if ((places.get(order) ?? topic) !== topic) {
          batch.barrier();
          places.clear();
        }
        places.set(order, topic);
      }
      batch.add({ index, message, record, size });
    }
    return batch;
  }

  #topicOf(message: Message): string | Failure {
    const { topic: topicOf } = this.#options;
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
    const { producer, declare } = this.#options;
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
  readonly sealed?: SealedMessage;
}

const CLOSE_MS = 5000;
const NOT_TRIED: PublishResult = { status: "unavailable" };

/** The client may still be sending what is no longer waited for: nothing may follow before it is through with that. */
async function endWhenIdle(batch: ProduceBatch | string, end: () => void): Promise<void> {
  if (typeof batch !== "string") await batch.idle;
  end();
}

function notAnswering(ms: number): UnavailableError {
  return new UnavailableError(`Kafka has not answered for ${ms} ms`);
}

function closed(): UnavailableError {
  return new UnavailableError("The Kafka publisher is closed");
}

const OPTIONS: readonly (keyof KafkaPublisherOptions)[] = [
  "producer",
  "topic",
  "envelope",
  "source",
  "compression",
  "declare",
  "maxBatchBytes",
  "timeoutMs",
];

function checkOptions(options: KafkaPublisherOptions): void {
  const of = "createKafkaPublisher";
  requireProducer(of, options?.producer);
  rejectUnknownOptions(of, options, OPTIONS);
  const { topic, envelope = "native", declare, maxBatchBytes = 1024, timeoutMs = 1 } = options;
  checkDeclare(of, declare);
  requireInteger(of, "maxBatchBytes", maxBatchBytes, 1024);
  requireInteger(of, "timeoutMs", timeoutMs, 1, 2 ** 31 - 1);
  if (topic !== undefined) {
    const fix = "Pass topic: (message) => name, or leave it out to publish to the topic named like the stream";
    requireFunction(of, "topic", topic, fix);
  }
  requireEnvelope(of, envelope);
}
