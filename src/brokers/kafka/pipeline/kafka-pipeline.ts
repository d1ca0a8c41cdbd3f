import {
  deadLetterName,
  describeError,
  ENVELOPE_OPTIONS,
  integer,
  names,
  oneOf,
  optional,
  readOptions,
  required,
  RunsOnce,
  SUBSCRIBER_OPTIONS,
  subscriberSettings,
  type EnvelopeOptions,
  type OptionSpec,
  type OptionSpecs,
  type SettingsOf,
  type SubscriberOptions,
  type SubscriberSettings,
} from "../../../adapter/index.ts";
import type { Message } from "../../../core/message.ts";
import { requireFunction, requireName } from "../../../core/options.ts";
import type { CommittedRecords } from "../committed-records.ts";
import { deadLetterForms, type DeadLetterForm } from "../dead-letter-forms.ts";
import type { Generation } from "../generation.ts";
import { GroupOffsets } from "../group-offsets.ts";
import { GroupReader } from "../group-reader.ts";
import {
  requireConsumer,
  requireTransactional,
  type KafkaConsumer,
  type KafkaRecordToSend,
  type KafkaTransactionalProducer,
} from "../kafka-client.ts";
import { encodeMessage, type KafkaRecord } from "../kafka-envelope.ts";
import { DECLARE, declareTopics, partitionsOf, type DeclareTopics } from "../kafka-topics.ts";
import { partitionOf } from "../partition.ts";
import type { PipelineHandler } from "./partition-worker.ts";
import { PipelinePartition } from "./pipeline-partition.ts";
import type { PartitionProgress } from "../partition-progress.ts";
import { requireShorterDrain } from "../kafka-subscriber.ts";
import { Troubles } from "../troubles.ts";

export interface KafkaPipelineOptions extends Omit<SubscriberOptions, "concurrency">, EnvelopeOptions {
  /** A consumer of its own: `new Consumer({ clientId, groupId, bootstrapBrokers, retries: false })`. It stays yours to close. */
  consumer: KafkaConsumer;
  /** Called once for each partition: `(transactionalId) => new Producer({ clientId, bootstrapBrokers, idempotent: true, transactionalId, retries: 5, retryDelay: 20 })`. */
  producer: (transactionalId: string) => KafkaTransactionalProducer;
  /** Names the transactions, with topic and partition; the same in every process of the group. Default: the group's id. */
  transactionalId?: string;
  topics: string | readonly string[];
  handle: PipelineHandler;
  /** Messages of one partition in one transaction. Default 100. */
  maxBatch?: number;
  deadLetter?: string | ((topic: string) => string);
  declare?: DeclareTopics;
  from?: "earliest" | "latest";
  sessionTimeoutMs?: number;
  drainMs?: number;
}

/** Reads, processes and writes within Kafka. */
export interface KafkaPipeline extends AsyncDisposable {
  start(): Promise<void>;
  /** Ends the transactions in hand and leaves the group. */
  stop(): Promise<void>;
}

const OF = "createKafkaPipeline";

type OpenProducer = KafkaPipelineOptions["producer"];

const PRODUCER: OptionSpec<OpenProducer> = {
  read(of, name, value) {
    requireFunction(of, name, value, "Pass producer: (transactionalId) => new Producer({ …, transactionalId })");
    return value as OpenProducer;
  },
};

const HANDLE: OptionSpec<PipelineHandler> = {
  read(of, name, value) {
    requireFunction(of, name, value, "Pass handle: async (message, send) => { … }");
    return value as PipelineHandler;
  },
};

const TRANSACTIONAL_ID: OptionSpec<string> = {
  read(of, name, value) {
    requireName(of, name, value);
    return value as string;
  },
};

const { concurrency: _, ...COMMON } = SUBSCRIBER_OPTIONS;

const OPTIONS = {
  ...COMMON,
  ...ENVELOPE_OPTIONS,
  consumer: required(requireConsumer),
  producer: PRODUCER,
  transactionalId: optional(TRANSACTIONAL_ID),
  topics: names('Pass topics: ["orders"]'),
  handle: HANDLE,
  maxBatch: integer(1, 100_000, 100),
  deadLetter: deadLetterName,
  declare: optional(DECLARE),
  from: oneOf(["earliest", "latest"], "earliest"),
  sessionTimeoutMs: integer(100, 1_800_000, 20_000),
  drainMs: optional(integer(1, 1_800_000, 1)),
} satisfies OptionSpecs<KafkaPipelineOptions>;

type Settings = SettingsOf<typeof OPTIONS>;

/**
 * What a handler sends, and that its input is done, become visible in one Kafka transaction or not at all. It covers
 * Kafka and nothing else: a handler that also writes to a database needs the outbox and the inbox.
 */
export function createKafkaPipeline(options: KafkaPipelineOptions): KafkaPipeline {
  const settings = readOptions(OF, options, OPTIONS);
  requireShorterDrain(OF, settings);
  const running = new RunsOnce("pipeline");
  const pipeline: KafkaPipeline = {
    start: () =>
      running.start(settings.consumer.groupId, async (stopping) => {
        const one = new Pipeline(settings);
        // A group can take long to join.
        stopping.addEventListener("abort", () => void one.stop());
        await one.start();
        return one;
      }),
    stop: () => running.stop(),
    [Symbol.asyncDispose]: () => pipeline.stop(),
  };
  return pipeline;
}

class Pipeline {
  readonly #options: Settings;
  readonly #settings: SubscriberSettings;
  readonly #reader: GroupReader;
  #partitions = new Map<string, PipelinePartition>();
  #stopping: Promise<void> | undefined;
  #queued = { records: 0, bytes: 0 };
  #roomier = Promise.withResolvers<void>();
  #spread = 0;

  constructor(options: Settings) {
    const { consumer, topics, from, sessionTimeoutMs, drainMs = Math.floor(sessionTimeoutMs / 2) } = options;
    const settings = subscriberSettings({ ...options, concurrency: 1 });
    this.#options = options;
    this.#settings = settings;
    const { emit, clock } = settings;
    const { groupId } = consumer;
    const troubles = new Troubles(
      {
        outage: (error, attempt, delayMs) =>
          emit({ type: "outage", consumer: groupId, error: describeError(error), attempt, delayMs }),
        recovered: () => emit({ type: "recovered", consumer: groupId }),
      },
      clock,
    );
    const offsets = new GroupOffsets(consumer);
    this.#reader = new GroupReader(
      { consumer, offsets, topics, from, sessionTimeoutMs, drainMs, maxBytes: settings.prefetchBytes, clock, troubles },
      {
        begin: (generation) => this.#begin(generation),
        open: async (topic, partition) => this.#partitions.get(`${topic}:${partition}`)?.open(),
        take: (fetched, progress, generation) => this.#take(fetched, progress, generation),
        restart: async (progress, place) => this.#partitions.get(progress.name)?.restart(progress, place),
        drain: () => this.#drain(),
        commit: () => Promise.resolve(),
      },
    );
  }

  async start(): Promise<void> {
    const { consumer, topics, declare, deadLetter } = this.#options;
    const all = new Set([...topics, ...topics.map(deadLetter)]);
    if (declare !== undefined) await declareTopics([...all], declare);
    for (const topic of all) await partitionsOf(topic, consumer);
    if (this.#stopping === undefined) await this.#reader.start();
  }

  async stop(): Promise<void> {
    this.#stopping ??= Promise.resolve().then(() => this.#stop());
    await this.#stopping;
  }

  async #stop(): Promise<void> {
    this.#roomier.resolve();
    await this.#reader.stop();
    await this.#close(this.#partitions);
  }

  /** Each partition is taken over as it is opened: after that no other process can commit anything for it. */
  async #begin(generation: Generation): Promise<void> {
    const before = this.#partitions;
    this.#partitions = new Map();
    await this.#close(before);
    const { consumer, producer, transactionalId = consumer.groupId, handle, maxBatch } = this.#options;
    const worker = {
      group: consumer.groupId,
      handle,
      settings: this.#settings,
      maxBatch,
      place: (outputs: readonly Message[]) => this.#place(outputs),
      forms: (record: KafkaRecord, error: unknown, attempts: number) => this.#forms(record, error, attempts),
      taken: (records: readonly KafkaRecord[]) => this.#count(records, -1),
    };
    for (const { topic, partitions } of generation.assigned) {
      for (const partition of partitions) {
        const mine = new PipelinePartition({
          topic,
          partition,
          consumer,
          generation,
          // No topic has a slash: other ids and topics make other names.
          transactionalId: `${transactionalId}/${topic}/${partition}`,
          producer: (id) => openProducer(producer, id),
          worker,
          confirmed: (signal) => this.#reader.confirmed(signal),
        });
        this.#partitions.set(`${topic}:${partition}`, mine);
      }
    }
  }

  async #close(partitions: ReadonlyMap<string, PipelinePartition>): Promise<void> {
    await Promise.all([...partitions.values()].map((partition) => partition.close()));
  }

  async #take(fetched: CommittedRecords, progress: PartitionProgress, { ending }: Generation): Promise<boolean> {
    const from = { offset: progress.next, epoch: progress.epoch, topicId: progress.topicId };
    while (!this.#hasRoom && !ending.aborted && this.#stopping === undefined) {
      await Promise.race([this.#roomier.promise, this.#settings.clock.sleep(1000, ending)]);
    }
    const mine = this.#partitions.get(`${progress.topic}:${progress.partition}`);
    if (mine === undefined || ending.aborted || this.#stopping !== undefined) return false;
    if (!mine.push(fetched, from, progress)) return false;
    this.#count(fetched.records, 1);
    return true;
  }

  get #hasRoom(): boolean {
    const { prefetch, prefetchBytes } = this.#settings;
    return this.#queued.records < prefetch && this.#queued.bytes < prefetchBytes;
  }

  #count(records: readonly KafkaRecord[], sign: 1 | -1): void {
    this.#queued.records += sign * records.length;
    for (const { value } of records) this.#queued.bytes += sign * (value?.length ?? 0);
    if (!this.#hasRoom) return;
    this.#roomier.resolve();
    this.#roomier = Promise.withResolvers();
  }

  async #drain(): Promise<void> {
    await Promise.all([...this.#partitions.values()].map(({ idle }) => idle));
  }

  /** Outputs with their partitions. */
  async #place(messages: readonly Message[]): Promise<KafkaRecordToSend[]> {
    const { consumer, envelope, source } = this.#options;
    const counts = new Map<string, number>();
    for (const { stream } of messages) {
      if (!counts.has(stream)) counts.set(stream, await partitionsOf(stream, consumer, this.#options.declare));
    }
    const spread = this.#spread++;
    return messages.map((message) => {
      const { key, value, headers } = encodeMessage(message, message.stream, envelope, source);
      const count = counts.get(message.stream)!;
      const partition = key === undefined ? spread % count : partitionOf(key, count);
      return { topic: message.stream, partition, value, headers, ...(key === undefined ? {} : { key }) };
    });
  }

  async #forms(record: KafkaRecord, error: unknown, attempts: number): Promise<DeadLetterForm[]> {
    const { consumer, declare, deadLetter } = this.#options;
    const topic = deadLetter(record.topic);
    const count = await partitionsOf(topic, consumer, declare);
    return deadLetterForms(record, topic, count, this.#spread++, { by: consumer.groupId, error, attempts });
  }
}

function openProducer(create: KafkaPipelineOptions["producer"], transactionalId: string): KafkaTransactionalProducer {
  const producer = create(transactionalId);
  requireTransactional(OF, producer, transactionalId);
  return producer;
}
