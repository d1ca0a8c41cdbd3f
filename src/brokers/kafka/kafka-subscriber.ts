import {
  createSubscriber,
  deadLetterName,
  Deliveries,
  describeError,
  integer,
  names,
  oneOf,
  openDelivery,
  optional,
  readOptions,
  required,
  SUBSCRIBER_OPTIONS,
  subscriberSettings,
  type Delivery,
  type OptionSpecs,
  type SettingsOf,
  type SubscriberOptions,
} from "../../adapter/index.ts";
import type { Handle, Subscriber } from "../../core/contracts.ts";
import type { IncomingMessage } from "../../core/message.ts";
import { requireInteger } from "../../core/options.ts";
import type { CommittedRecords } from "./committed-records.ts";
import { DeadLetters } from "./dead-letters.ts";
import type { Generation } from "./generation.ts";
import { GroupOffsets, type Place } from "./group-offsets.ts";
import { GroupReader } from "./group-reader.ts";
import { requireConsumer, requireProducer, type KafkaConsumer, type KafkaProducer } from "./kafka-client.ts";
import { openRecord, placeId, unreadable, type KafkaRecord } from "./kafka-envelope.ts";
import { DECLARE, declareTopics, partitionsOf, type DeclareTopics } from "./kafka-topics.ts";
import { OffsetCommits } from "./offset-commits.ts";
import type { PartitionProgress } from "./partition-progress.ts";
import { Troubles } from "./troubles.ts";

export interface KafkaSubscriberOptions extends SubscriberOptions {
  /** A consumer of its own: `new Consumer({ clientId, groupId, bootstrapBrokers, retries: false })`. It stays yours to close. */
  consumer: KafkaConsumer;
  /** Sends dead letters. It stays yours to close. */
  producer: KafkaProducer;
  /** One topic or several. */
  topics: string | readonly string[];
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

const SESSION_MS = 20_000;

const OPTIONS = {
  ...SUBSCRIBER_OPTIONS,
  consumer: required(requireConsumer),
  producer: required(requireProducer),
  topics: names('Pass topics: ["orders"]'),
  deadLetter: deadLetterName,
  declare: optional(DECLARE),
  from: oneOf(["earliest", "latest"], "earliest"),
  foreignId: oneOf(["content", "offset"], "content"),
  sessionTimeoutMs: integer(100, 1_800_000, SESSION_MS),
  drainMs: optional(integer(1, 1_800_000, 1)),
} satisfies OptionSpecs<KafkaSubscriberOptions>;

type Settings = SettingsOf<typeof OPTIONS>;

/** Subscribes to topics as a member of the consumer's group; offsets are committed after the handler is done. */
export function createKafkaSubscriber(options: KafkaSubscriberOptions): Subscriber {
  const of = "createKafkaSubscriber";
  const settings = readOptions(of, options, OPTIONS);
  requireShorterDrain(of, settings);
  return createSubscriber(async (consumer, handle, stopping) => {
    const subscription = new Subscription(consumer, handle, settings);
    // A group can take long to join.
    stopping.addEventListener("abort", () => void subscription.stop());
    await subscription.start();
    return subscription;
  });
}

/** Messages in hand must end before the group takes the partitions away. */
export function requireShorterDrain(
  of: string,
  { drainMs, sessionTimeoutMs }: { readonly drainMs: number | undefined; readonly sessionTimeoutMs: number },
): void {
  if (drainMs !== undefined) requireInteger(of, "drainMs", drainMs, 1, sessionTimeoutMs - 1);
}

class Subscription {
  readonly consumer: string;
  readonly #settings: Settings;
  readonly #deliveries: Deliveries;
  readonly #commits: OffsetCommits;
  readonly #dead: DeadLetters;
  readonly #reader: GroupReader;
  #stopping: Promise<void> | undefined;

  constructor(consumer: string, handle: Handle, options: Settings) {
    const { from, sessionTimeoutMs, drainMs = Math.floor(sessionTimeoutMs / 2) } = options;
    const settings = subscriberSettings(options, "kafka");
    this.consumer = consumer;
    this.#settings = options;
    this.#deliveries = new Deliveries(consumer, handle, settings);
    this.#dead = new DeadLetters(options.producer, options.deadLetter, options.declare);
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
    const { consumer, producer, topics, declare, deadLetter } = this.#settings;
    const dead = new Set(topics.map(deadLetter));
    if (declare !== undefined) await declareTopics([...topics, ...dead], declare);
    for (const topic of topics) await partitionsOf(topic, consumer);
    for (const topic of dead) await partitionsOf(topic, producer);
    if (this.#stopping === undefined) await this.#reader.start();
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
      ...openDelivery(record, (one) => this.#open(one), unreadable),
      attempts: 0,
      signal: generation.lost,
      ending: generation.ending,
      done,
      moveToDeadLetters: async (error, attempts) => {
        await this.#dead.put(record, this.consumer, error, attempts);
        done();
      },
      // Its offset stays where it is: the next reader of the partition gets it.
      release: () => undefined,
    };
  }

  #open(record: KafkaRecord): IncomingMessage {
    const message = openRecord(record);
    if (message.id !== undefined || this.#settings.foreignId !== "offset") return message;
    return { ...message, id: placeId(record) };
  }
}
