import { TxboxError } from "../../core/errors.ts";
import { Generation } from "./generation.ts";
import { explain } from "./kafka-errors.ts";
import { type FetchHooks, type FetchSettings, PartitionFetcher, pauseAfter } from "./partition-fetcher.ts";
import { settledWithin } from "./turns.ts";

/** What is done with what is read. */
export interface ReaderHooks extends FetchHooks {
  /** Before a generation asks what is committed. */
  begin?(generation: Generation): Promise<void>;
  /** Resolves when nothing that was taken is being worked on. */
  drain(): Promise<void>;
  /** Writes what is done, before the partitions are given up. */
  commit(generation: Generation): Promise<void>;
}

export interface ReaderSettings extends FetchSettings {
  readonly sessionTimeoutMs: number;
  /** How long messages in hand may take to end in a rebalance. */
  readonly drainMs: number;
}

const JOIN_ANSWER = Buffer.alloc(0);
const COMMIT_MS = 3000;
const LEAVE_MS = 5000;

/**
 * A member of a consumer group that reads its partitions. When a rebalance begins, what is in hand ends and is committed
 * before the group is joined again; what takes longer than `drainMs` is abandoned and never committed.
 */
export class GroupReader {
  readonly #settings: ReaderSettings;
  readonly #hooks: ReaderHooks;
  readonly #stopping = new AbortController();
  #generation: Generation | undefined;
  #last: Generation | undefined;
  #joining: Promise<void> | undefined;
  #lapsed = false;
  #lastBeat = 0;
  #heard = Promise.withResolvers<void>();
  #watch: NodeJS.Timeout | undefined;
  #outages = 0;

  constructor(settings: ReaderSettings, hooks: ReaderHooks) {
    this.#settings = settings;
    this.#hooks = {
      ...hooks,
      outage: (error, attempt, delayMs) => {
        this.#outages++;
        hooks.outage(error instanceof TxboxError ? error : explain(error), attempt, delayMs);
      },
      recovered: () => {
        if (this.#outages > 0) hooks.recovered();
        this.#outages = 0;
      },
    };
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
    const { consumer, topics, sessionTimeoutMs } = this.#settings;
    consumer.topics.trackAll(...topics);
    consumer.on("consumer:group:join", this.#joined);
    consumer.on("consumer:heartbeat:end", this.#beat);
    consumer.on("error", this.#dropped);
    this.#watch = setInterval(() => this.#checkSession(), Math.ceil(sessionTimeoutMs / 4));
    const patienceMs = 2 * sessionTimeoutMs;
    const joined = await settledWithin(this.#join(), patienceMs, this.#stopping.signal);
    if (joined !== "late") return;
    await this.stop();
    throw explain(new Error(`the group ${consumer.groupId} could not be joined within ${patienceMs} ms`));
  }

  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#stopping.abort();
    clearInterval(this.#watch);
    const { consumer, topics } = this.#settings;
    await this.#end();
    // A broker that does not answer must not keep the application from ending.
    if (this.#joining !== undefined) await within(LEAVE_MS, this.#joining);
    await within(LEAVE_MS, consumer.leaveGroup());
    if (this.#last !== undefined) await within(LEAVE_MS, this.#last.running);
    consumer.off("consumer:group:join", this.#joined);
    consumer.off("consumer:heartbeat:end", this.#beat);
    consumer.off("error", this.#dropped);
    consumer.topics.untrackAll(...topics);
  }

  #join(): Promise<void> {
    this.#joining ??= this.#tryToJoin().finally(() => (this.#joining = undefined));
    return this.#joining;
  }

  async #tryToJoin(): Promise<void> {
    const { consumer, sessionTimeoutMs, clock } = this.#settings;
    for (let attempt = 1; !this.#stopping.signal.aborted; attempt++) {
      try {
        await consumer.joinGroup({
          sessionTimeout: sessionTimeoutMs,
          rebalanceTimeout: sessionTimeoutMs,
          heartbeatInterval: Math.max(100, Math.floor(sessionTimeoutMs / 10)),
          // Awaited before each request to join, also those that the client makes by itself.
          protocolsMetadata: async () => {
            await this.#end();
            return JOIN_ANSWER;
          },
        });
        return;
      } catch (error) {
        await pauseAfter(error, attempt, this.#stopping.signal, clock, this.#hooks);
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
    this.#hooks.outage(error, 1, 0);
    void this.#join();
  };

  /** Who is not heard of for this long loses its partitions, and must notice without being told. */
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
    const fetcher = new PartitionFetcher(this.#settings, this.#hooks, generation);
    await before?.running;
    for (let attempt = 1; !generation.ending.aborted; attempt++) {
      try {
        await this.#hooks.begin?.(generation);
        for (const progress of await fetcher.positions()) {
          generation.partitions.set(`${progress.topic}:${progress.partition}`, progress);
        }
        break;
      } catch (error) {
        await pauseAfter(error, attempt, generation.ending, this.#settings.clock, this.#hooks);
      }
    }
    await fetcher.run();
  }

  /** Ends the generation in peace, within a time. */
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
  await settledWithin(promise, ms, new AbortController().signal).catch(() => undefined);
}
