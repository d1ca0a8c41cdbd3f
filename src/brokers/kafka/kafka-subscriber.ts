import type { Handle, Subscriber } from "../../core/contracts.ts";
import { describeError, TxboxError } from "../../core/errors.ts";
import type { IncomingMessage } from "../../core/message.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { Deliveries, type Delivery } from "../shared/deliveries.ts";
import {
  SUBSCRIBER_OPTIONS,
  subscriberSettings,
  type SubscriberOptions,
  type SubscriberSettings,
} from "../shared/subscriber-options.ts";
import type { CommittedRecords } from "./committed-records.ts";
import { DeadLetters } from "./dead-letters.ts";
import type { Generation } from "./generation.ts";
import { GroupOffsets, type Place } from "./group-offsets.ts";
import { GroupReader } from "./group-reader.ts";
import { requireConsumer, requireProducer, type KafkaConsumer, type KafkaProducer } from "./kafka-client.ts";
import { openRecord, placeId, unreadable, type KafkaRecord } from "./kafka-record.ts";
import { checkDeclare, declareTopics, partitionsOf, type DeclareTopics } from "./kafka-topics.ts";
import { OffsetCommits } from "./offset-commits.ts";
import type { PartitionProgress } from "./partition-progress.ts";
import { Troubles } from "./troubles.ts";

export interface KafkaSubscriberOptions extends SubscriberOptions {
  /** A consumer of its own: `new Consumer({ clientId, groupId, bootstrapBrokers, retries: false })`. */
  consumer: KafkaConsumer;
  /** Sends dead letters. */
  producer: KafkaProducer;
  topics: readonly string[];
  /** The topic of dead letters, by the topic they come from. Default: `<topic>.dead`. */
  deadLetter?: string | ((topic: string) => string);
  /** Creates topics that are missing, those of dead letters included. */
  declare?: DeclareTopics;
  /** Where a group begins that has committed nothing yet. Default "earliest". */
  from?: "earliest" | "latest";
  /** What makes two messages of other producers the same, when they carry no id. Default "content". */
  foreignId?: "content" | "offset";
  /** After this long without a sign of life, its partitions go to others. Default 20 s. */
  sessionTimeoutMs?: number;
  /** In a rebalance, messages in hand may take this long to end; less than the session timeout. Default: half of it. */
  drainMs?: number;
}

/** Subscribes to topics as a member of the consumer's group; offsets are committed after the handler is done. */
export function createKafkaSubscriber(options: KafkaSubscriberOptions): Subscriber {
  const settings = checkOptions(options);
  let subscription: Subscription | undefined;
  return {
    async start(consumer, handle) {
      if (subscription !== undefined) {
        throw new TxboxError("invalid_option", `This subscriber already serves ${subscription.consumer}`, {
          fix: "Create another one, with a consumer of its own",
        });
      }
      subscription = new Subscription(consumer, handle, options, settings);
      try {
        await subscription.start();
      } catch (error) {
        subscription = undefined;
        throw error;
      }
    },
    async stop() {
      const ending = subscription;
      await ending?.stop();
      if (subscription === ending) subscription = undefined;
    },
  };
}

class Subscription {
  readonly consumer: string;
  readonly #options: KafkaSubscriberOptions;
  readonly #deliveries: Deliveries;
  readonly #commits: OffsetCommits;
  readonly #dead: DeadLetters;
  readonly #reader: GroupReader;
  #stopping: Promise<void> | undefined;

  constructor(consumer: string, handle: Handle, options: KafkaSubscriberOptions, settings: SubscriberSettings) {
    const { from = "earliest", sessionTimeoutMs = SESSION_MS, drainMs = Math.floor(sessionTimeoutMs / 2) } = options;
    this.consumer = consumer;
    this.#options = options;
    this.#deliveries = new Deliveries(consumer, handle, settings);
    this.#dead = new DeadLetters(options.producer, (topic) => deadTopicOf(topic, options), options.declare);
    const troubles = new Troubles(
      {
        outage: (error, attempt, delayMs) =>
          settings.emit({ type: "outage", consumer, error: describeError(error), attempt, delayMs }),
        recovered: () => settings.emit({ type: "recovered", consumer }),
      },
      settings.clock,
    );
    const offsets = new GroupOffsets(options.consumer);
    this.#commits = new OffsetCommits(offsets, () => this.#reader.generation, troubles);
    const { consumer: client, topics } = options;
    this.#reader = new GroupReader(
      {
        consumer: client,
        offsets,
        topics,
        from,
        sessionTimeoutMs,
        drainMs,
        maxBytes: settings.prefetchBytes,
        clock: settings.clock,
        troubles,
      },
      {
        take: (fetched, progress, generation) => this.#take(fetched, progress, generation),
        restart: async (progress, place) => this.#restart(progress, place),
        drain: () => this.#deliveries.empty(),
        commit: (generation) => this.#commits.write(generation),
      },
    );
  }

  async start(): Promise<void> {
    const { consumer, producer, topics, declare } = this.#options;
    const dead = new Set(topics.map((topic) => deadTopicOf(topic, this.#options)));
    if (declare !== undefined) await declareTopics([...topics, ...dead], declare);
    for (const topic of topics) await partitionsOf(topic, consumer);
    for (const topic of dead) await partitionsOf(topic, producer);
    await this.#reader.start();
  }

  async stop(): Promise<void> {
    this.#stopping ??= Promise.resolve().then(() => this.#stop());
    await this.#stopping;
  }

  async #stop(): Promise<void> {
    await this.#deliveries.stop();
    await this.#reader.stop();
    this.#commits.stop();
  }

  async #take(
    { records, next, epoch }: CommittedRecords,
    progress: PartitionProgress,
    generation: Generation,
  ): Promise<boolean> {
    const { topicId } = progress;
    for (const record of records) {
      const at = progress.next;
      if (!this.#deliveries.hasRoom) await this.#deliveries.room();
      if (generation.ending.aborted || this.#stopping !== undefined) return false;
      // It is read from elsewhere by now.
      if (progress.next !== at || progress.topicId !== topicId) return false;
      this.#deliveries.take(this.#delivery(record, progress, generation));
    }
    progress.readTo(next, epoch);
    return true;
  }

  /** The group may know more of the log than is left of it: it must learn that soon, also when nothing comes. */
  #restart(progress: PartitionProgress, place: Place): void {
    progress.restart(place);
    this.#commits.soon();
  }

  #delivery(record: KafkaRecord, progress: PartitionProgress, generation: Generation): Delivery {
    const taken = progress.take(record.offset, record.epoch);
    const done = (): void => {
      progress.done(taken);
      this.#commits.soon();
    };
    return {
      ...this.#open(record),
      attempts: 0,
      signal: generation.lost,
      ending: generation.ending,
      done,
      bury: async (error, attempts) => {
        await this.#dead.put(record, this.consumer, error, attempts);
        done();
      },
      // Its offset stays where it is: whoever has the partition next gets it.
      release: () => undefined,
    };
  }

  #open(record: KafkaRecord): { message: IncomingMessage; broken?: unknown } {
    try {
      const message = openRecord(record);
      if (message.id !== undefined || this.#options.foreignId !== "offset") return { message };
      return { message: { ...message, id: placeId(record) } };
    } catch (error) {
      return { message: unreadable(record), broken: error };
    }
  }
}

const SESSION_MS = 20_000;

function deadTopicOf(topic: string, { deadLetter }: KafkaSubscriberOptions): string {
  if (typeof deadLetter === "function") return deadLetter(topic);
  return deadLetter ?? `${topic}.dead`;
}

const OPTIONS: readonly (keyof KafkaSubscriberOptions)[] = [
  ...SUBSCRIBER_OPTIONS,
  "consumer",
  "producer",
  "topics",
  "deadLetter",
  "declare",
  "from",
  "foreignId",
  "sessionTimeoutMs",
  "drainMs",
];

function checkOptions(options: KafkaSubscriberOptions): SubscriberSettings {
  const of = "createKafkaSubscriber";
  requireConsumer(of, options?.consumer);
  requireProducer(of, options.producer);
  rejectUnknownOptions(of, options, OPTIONS);
  const { topics, declare, from = "earliest", foreignId = "content", sessionTimeoutMs = SESSION_MS } = options;
  if (!Array.isArray(topics) || topics.length === 0 || topics.some((topic) => typeof topic !== "string")) {
    throw invalid(of, "topics", "must be a list of names", 'Pass topics: ["orders"]');
  }
  checkDeclare(of, declare);
  requireInteger(of, "sessionTimeoutMs", sessionTimeoutMs, 100, 1_800_000);
  requireInteger(of, "drainMs", options.drainMs ?? 1, 1, sessionTimeoutMs - 1);
  if (from !== "earliest" && from !== "latest") {
    throw invalid(of, "from", `cannot be ${String(from)}`, 'Use "earliest" or "latest"');
  }
  if (foreignId !== "content" && foreignId !== "offset") {
    throw invalid(of, "foreignId", `cannot be ${String(foreignId)}`, 'Use "content" or "offset"');
  }
  return subscriberSettings(of, options);
}

function invalid(of: string, field: string, what: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", `${of}: ${field} ${what}`, { field, fix });
}
