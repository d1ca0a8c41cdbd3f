import { LATE, settledWithin } from "../../adapter/index.ts";
import type { Clock } from "../../core/contracts.ts";
import { Generation } from "./generation.ts";
import type { GroupOffsets } from "./group-offsets.ts";
import type { KafkaConsumer } from "./kafka-client.ts";
import { explain } from "./kafka-errors.ts";
import { PartitionBeginner } from "./partition-beginner.ts";
import { type FetchHooks, PartitionFetcher } from "./partition-fetcher.ts";
import { TopicWatch } from "./topic-watch.ts";
import type { Troubles } from "./troubles.ts";

/** What is done with what is read. */
export interface ReaderHooks extends FetchHooks {
  /** Before anything of a generation. */
  begin?(generation: Generation): Promise<void>;
  /** Before the group is asked what is committed for a partition. */
  open?(topic: string, partition: number): Promise<void>;
  /** Resolves when nothing that was taken is being worked on. */
  drain(): Promise<void>;
  /** Writes what is done, before the partitions are given up. */
  commit(generation: Generation): Promise<void>;
}

export interface ReaderSettings {
  readonly consumer: KafkaConsumer;
  readonly offsets: GroupOffsets;
  readonly topics: readonly string[];
  /** Where a group begins that has committed nothing. */
  readonly from: "earliest" | "latest";
  /** What one answer of a broker may bring at most. */
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly troubles: Troubles;
  readonly sessionTimeoutMs: number;
  /** How long messages in hand may take to end in a rebalance. */
  readonly drainMs: number;
}

/** Names of troubles that are not a partition's. */
const GROUP = "group";
const CLUSTER = "cluster";
const troubleOf = (topic: string): string => `topic ${topic}`;

const JOIN_ANSWER = Buffer.alloc(0);
const COMMIT_MS = 3000;
const LEAVE_MS = 5000;
const TEND_MS = 100;

/**
 * A member of a consumer group that reads its partitions. When a rebalance begins, what is in hand ends and is committed
 * before the group is joined again; what takes longer than `drainMs` is abandoned and never committed. The group is
 * joined for those topics that are whole, and again when one comes or has other partitions than before.
 */
export class GroupReader {
  readonly #settings: ReaderSettings;
  readonly #hooks: ReaderHooks;
  readonly #watch: TopicWatch;
  readonly #stopping = new AbortController();
  /** Topics that the client is told of: those that are whole. */
  readonly #tracked = new Set<string>();
  /** Those that the group was joined for, and how many partitions each had. */
  #joinedFor: ReadonlyMap<string, number> = new Map();
  /** Partitions that each topic had when it was first seen. */
  readonly #firstCounts = new Map<string, number>();
  #generation: Generation | undefined;
  #fetcher: PartitionFetcher | undefined;
  #last: Generation | undefined;
  #joining: Promise<void> | undefined;
  #tending: Promise<void> | undefined;
  #lapsed = false;
  #lastBeat = 0;
  #heard = Promise.withResolvers<void>();
  #sessionCheck: NodeJS.Timeout | undefined;

  constructor(settings: ReaderSettings, hooks: ReaderHooks) {
    this.#settings = settings;
    this.#hooks = hooks;
    this.#watch = new TopicWatch(settings.consumer, settings.topics, settings.clock);
  }

  get generation(): Generation | undefined {
    return this.#generation;
  }

  /** Resolves when the group next confirms that this is a member, or when the signal aborts. */
  async confirmed(signal: AbortSignal): Promise<void> {
    await settledWithin(this.#heard.promise, this.#settings.sessionTimeoutMs, signal);
  }

  /** Resolves when the group is joined. */
  async start(): Promise<void> {
    const { consumer, sessionTimeoutMs } = this.#settings;
    consumer.on("consumer:group:join", this.#joined);
    consumer.on("consumer:heartbeat:end", this.#beat);
    consumer.on("error", this.#dropped);
    this.#sessionCheck = setInterval(() => this.#checkSession(), Math.ceil(sessionTimeoutMs / 4));
    const patienceMs = 2 * sessionTimeoutMs;
    const joined = await settledWithin(this.#join(), patienceMs, this.#stopping.signal);
    if (joined !== LATE) {
      this.#tending = this.#tend();
      return;
    }
    await this.stop();
    throw explain(new Error(`the group ${consumer.groupId} could not be joined within ${patienceMs} ms`));
  }

  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#stopping.abort();
    clearInterval(this.#sessionCheck);
    const { consumer } = this.#settings;
    await this.#end();
    // A broker that does not answer must not keep the application from ending.
    if (this.#joining !== undefined) await within(LEAVE_MS, this.#joining);
    await within(LEAVE_MS, consumer.leaveGroup());
    if (this.#last !== undefined) await within(LEAVE_MS, this.#last.running);
    if (this.#tending !== undefined) await within(LEAVE_MS, this.#tending);
    consumer.off("consumer:group:join", this.#joined);
    consumer.off("consumer:heartbeat:end", this.#beat);
    consumer.off("error", this.#dropped);
    consumer.topics.untrackAll(...this.#tracked);
    this.#tracked.clear();
  }

  /** Looks after topics and partitions until the end. */
  async #tend(): Promise<void> {
    const { troubles, clock } = this.#settings;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      await clock.sleep(TEND_MS, signal);
      try {
        await this.#watch.refresh();
        troubles.over(CLUSTER);
      } catch (error) {
        await troubles.pause(CLUSTER, error, signal);
        continue;
      }
      this.#track();
      for (const topic of this.#settings.topics) {
        const problem = this.#watch.problemOf(topic);
        if (problem === undefined) troubles.over(troubleOf(topic));
        else troubles.remind(troubleOf(topic), () => problem);
      }
      this.#fetcher?.tend();
      if (this.#generation !== undefined && this.#joining === undefined && this.#isOutgrown()) void this.#join();
    }
  }

  /** Any call of the client fails when it has been told of a topic that is missing or lacks a leader. */
  #track(): void {
    const { topics } = this.#settings.consumer;
    const whole = this.#watch.whole();
    for (const [name, count] of whole) {
      if (!this.#firstCounts.has(name)) this.#firstCounts.set(name, count);
      if (this.#tracked.has(name)) continue;
      topics.trackAll(name);
      this.#tracked.add(name);
    }
    for (const name of this.#tracked) {
      if (whole.has(name)) continue;
      topics.untrackAll(name);
      this.#tracked.delete(name);
    }
  }

  /** Whether there is a topic, or a number of partitions, for which this member has not joined the group. */
  #isOutgrown(): boolean {
    return [...this.#watch.whole()].some(([name, count]) => this.#joinedFor.get(name) !== count);
  }

  #join(): Promise<void> {
    this.#joining ??= this.#tryToJoin().finally(() => (this.#joining = undefined));
    return this.#joining;
  }

  async #tryToJoin(): Promise<void> {
    const { consumer, sessionTimeoutMs, troubles } = this.#settings;
    while (!this.#stopping.signal.aborted) {
      try {
        await this.#watch.look();
        this.#track();
        await consumer.joinGroup({
          sessionTimeout: sessionTimeoutMs,
          rebalanceTimeout: sessionTimeoutMs,
          heartbeatInterval: Math.max(100, Math.floor(sessionTimeoutMs / 10)),
          // Awaited before each request to join, also those that the client makes by itself.
          protocolsMetadata: async () => {
            await this.#end();
            this.#track();
            this.#joinedFor = this.#watch.whole();
            return JOIN_ANSWER;
          },
        });
        troubles.over(GROUP);
        return;
      } catch (error) {
        await troubles.pause(GROUP, error, this.#stopping.signal);
      }
    }
  }

  readonly #joined = (): void => {
    this.#lapsed = false;
    this.#lastBeat = this.#settings.clock.monotonic();
    this.#begin();
  };

  readonly #beat = (): void => {
    this.#lastBeat = this.#settings.clock.monotonic();
    this.#heard.resolve();
    this.#heard = Promise.withResolvers();
    if (!this.#lapsed) return;
    this.#lapsed = false;
    this.#begin();
  };

  /** The client could not join again, and tries no more. */
  readonly #dropped = (error: Error): void => {
    if (this.#stopping.signal.aborted) return;
    this.#abandon();
    this.#settings.troubles.report(GROUP, error);
    void this.#join();
  };

  /** A member that the group does not hear of for this long loses its partitions, and must notice that by itself. */
  #checkSession(): void {
    const { clock, sessionTimeoutMs } = this.#settings;
    if (this.#generation === undefined || clock.monotonic() - this.#lastBeat < sessionTimeoutMs) return;
    this.#lapsed = true;
    this.#abandon();
  }

  #abandon(): void {
    this.#generation?.abandon();
    this.#generation = undefined;
  }

  #begin(): void {
    if (this.#stopping.signal.aborted) return;
    this.#abandon();
    const before = this.#last;
    const generation = new Generation(this.#settings.consumer.assignments);
    this.#generation = generation;
    this.#last = generation;
    generation.running = this.#run(generation, before);
  }

  async #run(generation: Generation, before: Generation | undefined): Promise<void> {
    const { troubles, clock, consumer, offsets, from, maxBytes } = this.#settings;
    const watch = this.#watch;
    await before?.running;
    if (generation.ending.aborted) return;
    const mine = generation.assigned.flatMap(({ topic, partitions }) => partitions.map((n) => `${topic}:${n}`));
    troubles.keepOnly(new Set([GROUP, CLUSTER, ...this.#settings.topics.map(troubleOf), ...mine]));
    const fetcher = new PartitionFetcher({ consumer, maxBytes, clock, watch, troubles }, this.#hooks, generation);
    this.#fetcher = fetcher;
    await this.#hooks.begin?.(generation);
    const open = this.#hooks.open?.bind(this.#hooks);
    const isNew = (topic: string, partition: number): boolean =>
      partition >= (this.#firstCounts.get(topic) ?? Infinity);
    await Promise.all([
      new PartitionBeginner({ consumer, offsets, watch, troubles, from, isNew, open }, generation).begin(),
      fetcher.ended(),
    ]);
  }

  /** Ends the generation in good order, within a time. */
  async #end(): Promise<void> {
    const generation = this.#generation;
    if (generation === undefined) return;
    this.#generation = undefined;
    generation.end();
    await within(this.#settings.drainMs, this.#hooks.drain());
    await within(COMMIT_MS, this.#hooks.commit(generation));
    generation.abandon();
  }
}

/** Waits for it, but not for long, and not for its success. */
async function within(ms: number, promise: Promise<unknown>): Promise<void> {
  await settledWithin(promise, ms).catch(() => undefined);
}
