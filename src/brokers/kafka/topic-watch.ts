import type { Clock } from "../../core/contracts.ts";
import type { KafkaConsumer, KafkaTopic } from "./kafka-client.ts";
import { isUnknownTopic, partitionError, responseOf, unknownTopic } from "./kafka-errors.ts";

/** A topic as the cluster describes it. */
export interface WatchedTopic {
  /** Another one when the topic was made anew. Undefined: there is no such topic, or it cannot be looked at. */
  readonly id: string | undefined;
  /** The broker that leads each partition, -1 where none does. */
  readonly leaders: readonly number[];
  /** What is wrong with the topic as a whole. */
  readonly error?: Error;
}

/** At the latest after this long it is looked again: for new partitions, new leaders, topics that came or went. */
const MAX_AGE_MS = 5000;
/** And not before this, however many ask. */
const MIN_AGE_MS = 200;
/** A broker that has just started or is behind may deny a topic: one that is denied this often is missing. */
const DENIALS = 3;
const NO_LEADER = 5;

/**
 * Looks after topics one by one. The client answers for all of a list or for none: one topic that is missing, or one
 * partition without a leader, and it knows nothing of the others either.
 */
export class TopicWatch {
  readonly #consumer: KafkaConsumer;
  readonly #names: readonly string[];
  readonly #clock: Clock;
  readonly #topics = new Map<string, WatchedTopic>();
  readonly #denials = new Map<string, number>();
  #looking: Promise<void> | undefined;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #stale = true;

  constructor(consumer: KafkaConsumer, names: readonly string[], clock: Clock) {
    this.#consumer = consumer;
    this.#names = names;
    this.#clock = clock;
  }

  /** Undefined: it was never seen. */
  of(topic: string): WatchedTopic | undefined {
    return this.#topics.get(topic);
  }

  leaderOf(topic: string, partition: number): number | undefined {
    const leader = this.#topics.get(topic)?.leaders[partition];
    return leader === undefined || leader < 0 ? undefined : leader;
  }

  /** What is wrong with a topic. A single partition without a leader does not keep the others from being read. */
  problemOf(topic: string): Error | undefined {
    const found = this.#topics.get(topic);
    if (found === undefined || found.error !== undefined) return found?.error;
    const partition = found.leaders.findIndex((leader) => leader < 0);
    if (partition < 0) return undefined;
    this.#stale = true;
    return partitionError(`${topic}, partition ${partition}`, NO_LEADER);
  }

  /** Topics that are there with all their partitions, and how many partitions: the client can work with them. */
  whole(): Map<string, number> {
    const whole = new Map<string, number>();
    for (const [name, { id, leaders }] of this.#topics) {
      if (id !== undefined && leaders.length > 0 && leaders.every((leader) => leader >= 0)) {
        whole.set(name, leaders.length);
      }
    }
    return whole;
  }

  /** Something does not fit what is known. */
  doubt(): void {
    this.#stale = true;
  }

  /** Looks if there is a reason to. Rejects when no broker answers. */
  async refresh(): Promise<void> {
    const age = this.#clock.monotonic() - this.#lookedAt;
    if (age >= MAX_AGE_MS || (this.#stale && age >= MIN_AGE_MS)) await this.look();
  }

  async look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => (this.#looking = undefined));
    await this.#looking;
  }

  async #look(): Promise<void> {
    this.#stale = false;
    this.#lookedAt = this.#clock.monotonic();
    try {
      const topics = await this.#ask(this.#names);
      for (const name of this.#names) this.#note(name, topics.get(name));
    } catch {
      for (const name of this.#names) await this.#lookAt(name);
    }
  }

  async #lookAt(name: string): Promise<void> {
    try {
      this.#note(name, (await this.#ask([name])).get(name));
    } catch (error) {
      if (isUnknownTopic(error)) return this.#note(name, undefined);
      const response: MetadataResponse | undefined = responseOf(error);
      const found = response?.topics?.find((topic) => topic.name === name);
      if (found === undefined) {
        this.#stale = true;
        throw error;
      }
      this.#denials.delete(name);
      this.#topics.set(name, describe(found));
    }
  }

  #note(name: string, found: KafkaTopic | undefined): void {
    if (found !== undefined) {
      this.#denials.delete(name);
      this.#topics.set(name, { id: found.id, leaders: Array.from(found.partitions, (one) => one?.leader ?? -1) });
      return;
    }
    const denials = (this.#denials.get(name) ?? 0) + 1;
    this.#denials.set(name, denials);
    if (denials >= DENIALS)
      this.#topics.set(name, { id: undefined, leaders: [], error: unknownTopic(name, "declare") });
    // It is looked for until it is back.
    this.#stale = true;
  }

  async #ask(topics: readonly string[]): Promise<ReadonlyMap<string, KafkaTopic>> {
    const asked = { topics: [...topics], autocreateTopics: false, forceUpdate: true, retries: 0 };
    return (await this.#consumer.metadata(asked)).topics;
  }
}

interface MetadataResponse {
  readonly topics?: readonly RawTopic[];
}

interface RawTopic {
  readonly name: string | null;
  readonly topicId: string;
  readonly errorCode: number;
  readonly partitions: readonly { readonly partitionIndex: number; readonly leaderId: number }[];
}

/** Of an answer that the client treats as a failure, because a part of it is one. */
function describe({ name, topicId, errorCode, partitions }: RawTopic): WatchedTopic {
  const leaders: number[] = [];
  for (const { partitionIndex, leaderId } of partitions) leaders[partitionIndex] = leaderId;
  const all = Array.from(leaders, (leader) => leader ?? -1);
  if (errorCode === 0) return { id: topicId, leaders: all };
  return { id: undefined, leaders: [], error: partitionError(`the topic ${name}`, errorCode) };
}
