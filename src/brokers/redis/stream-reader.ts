import { type Deliveries, HeldMessages, openDelivery, repeat, SubscriberOutage } from "../../adapter/index.ts";
import { PermanentError } from "../../core/errors.ts";
import { deadHeaders } from "../../core/dead-letter.ts";
import { brokenEntry, deadEntry, openEntry } from "./redis-envelope.ts";
import { explainRedis, isReply } from "./redis-errors.ts";
import type { RedisLink } from "./redis-link.ts";
import type { RedisSubscriberSettings } from "./redis-subscriber-options.ts";
import { PageSize } from "./page-size.ts";
import { sizeOfEntry, type PendingEntry, type StreamEntry, type StreamGroup } from "./stream-group.ts";

export interface ReaderParts {
  readonly consumer: string;
  readonly group: StreamGroup;
  /** For commands that wait on the server. */
  readonly blocking: RedisLink;
  readonly deliveries: Deliveries;
  readonly settings: RedisSubscriberSettings;
}

/** A member that was not seen for so long, and has nothing pending, is gone for good. */
const FORGET_MEMBERS_MS = 24 * 60 * 60 * 1000;
const RECONNECT = { baseMs: 50, maxMs: 2000 };
const MAX_BLOCK_MS = 5000;
/** Attempts that have begun and not ended well, until an entry is handled alone. */
const SUSPICIOUS = 3;
/** When there is more waiting than can be worked on, a little patience makes for fuller requests. */
const GATHER_MS = 5;

/** Reads one stream until it is stopped, whatever happens to the server meanwhile. */
export abstract class StreamReader {
  protected readonly group: StreamGroup;
  protected readonly blocking: RedisLink;
  protected readonly settings: RedisSubscriberSettings;
  protected readonly held: HeldMessages;
  protected readonly stopping: AbortController = new AbortController();
  readonly #ended = new AbortController();
  readonly #consumer: string;
  readonly #deliveries: Deliveries;
  readonly #page = new PageSize();
  #running: Promise<unknown> | undefined;
  readonly #outage: SubscriberOutage;
  #onSurvived: (() => void) | undefined;
  /** Nothing pending is from this life of the member yet. */
  #newborn = true;
  #sweepAt = Number.NEGATIVE_INFINITY;

  constructor({ consumer, group, blocking, deliveries, settings }: ReaderParts) {
    this.group = group;
    this.blocking = blocking;
    this.settings = settings;
    this.held = new HeldMessages({
      acknowledge: (ids) => group.acknowledge(ids).then(() => []),
      renew: (ids) => group.touch(ids),
    });
    this.#consumer = consumer;
    this.#deliveries = deliveries;
    this.#outage = new SubscriberOutage(consumer, settings, RECONNECT);
  }

  start(): void {
    const { clock, takeOverAfterMs } = this.settings;
    this.#running = Promise.all([
      this.#outage.keepTaking(() => this.#take(), this.stopping.signal),
      repeat(takeOverAfterMs / 3, () => this.#tend(), this.#ended.signal, clock),
    ]);
  }

  /** Takes no more entries; those in hand stay ours until `end`. */
  stopTaking(): void {
    this.stopping.abort();
    this.blocking.close();
  }

  /** Once nothing is in hand: tells Redis what is done, and leaves the rest to others. */
  async end(deleteMember: boolean): Promise<void> {
    const told = await this.held.end();
    this.#ended.abort();
    await this.#running;
    // When Redis could not be told, other members take over the entries later.
    if (told) await this.leave(deleteMember).catch(() => undefined);
  }

  /** Takes entries until something goes wrong or the right to do so is lost. Called again and again. */
  protected abstract takeEntries(): Promise<void>;
  /** What has to be done every now and then to keep what is in hand. */
  protected abstract keepEntries(): Promise<void>;

  protected async leave(deleteMember: boolean): Promise<void> {
    await this.group.leave(deleteMember);
  }

  protected get blockMs(): number {
    return Math.min(MAX_BLOCK_MS, Math.floor(this.settings.takeOverAfterMs / 3));
  }

  /** Resolves to how many entries may be taken now; at least one unless it is being stopped. */
  protected async room(): Promise<number> {
    const { prefetch, prefetchBytes, concurrency, clock } = this.settings;
    const deliveries = this.#deliveries;
    await deliveries.room();
    if (deliveries.inHand > Math.max(concurrency, prefetch / 2)) await clock.sleep(GATHER_MS, this.stopping.signal);
    return this.#page.next(prefetch - deliveries.inHand, prefetchBytes - deliveries.bytes);
  }

  /**
   * Takes pending entries that are not in hand, in order: of all members or of one. An attempt counts when it began
   * elsewhere or in another life; one whose answer was lost on the way has not begun.
   */
  protected async takePending(from: { member?: string; minIdleMs?: number }): Promise<void> {
    const newborn = this.#newborn;
    let after: string | undefined;
    while (!this.stopping.signal.aborted) {
      const count = await this.room();
      const page = await this.group.pending({ ...from, after, count });
      const last = page.at(-1);
      if (last === undefined) break;
      after = last.id;
      const claim = (rows: readonly PendingEntry[]): Promise<void> => this.#claim(rows, from.minIdleMs ?? 0, newborn);
      let together: PendingEntry[] = [];
      for (const row of page.filter(({ id }) => !this.held.has(id))) {
        if (row.deliveries < SUSPICIOUS) {
          together.push(row);
          continue;
        }
        await claim(together);
        together = [];
        await this.#alone(() => claim([row]));
      }
      await claim(together);
    }
    this.#newborn = false;
  }

  /**
   * Entries that several processes have taken and not finished may have killed them. Such an entry is tried with
   * nothing beside it: should this process die too, only that entry loses an attempt. This waits no longer than a
   * take-over takes.
   */
  async #alone(claim: () => Promise<void>): Promise<void> {
    const { clock, takeOverAfterMs } = this.settings;
    const enough = AbortSignal.any([this.stopping.signal, AbortSignal.timeout(takeOverAfterMs)]);
    await Promise.race([this.#deliveries.empty(), clock.sleep(takeOverAfterMs, enough)]);
    if (this.stopping.signal.aborted) return;
    const survived = Promise.withResolvers<void>();
    this.#onSurvived = survived.resolve;
    await claim();
    await Promise.race([this.#deliveries.empty(), survived.promise, clock.sleep(takeOverAfterMs, enough)]);
    this.#onSurvived = undefined;
  }

  async #claim(rows: readonly PendingEntry[], minIdleMs: number, newborn: boolean): Promise<void> {
    const attemptOf = ({ member, deliveries }: PendingEntry): number =>
      newborn || member !== this.group.member ? deliveries + 1 : Math.max(1, deliveries);
    if (rows.length === 0) return;
    const claimed = new Map<string, StreamEntry>();
    for (const [attempt, group] of Map.groupBy(rows, attemptOf)) {
      const ids = group.map(({ id }) => id);
      for (const entry of await this.group.claim(ids, minIdleMs, attempt)) claimed.set(entry.id, entry);
    }
    const found = rows.filter(({ id }) => claimed.has(id));
    const before = new Map(found.map((row) => [row.id, attemptOf(row) - 1]));
    await this.deliver(
      found.map(({ id }) => claimed.get(id)!),
      ({ id }) => before.get(id) ?? 0,
    );
    for (const row of rows) {
      if (!claimed.has(row.id) && !(await this.group.exists(row.id))) await this.#gone(row);
    }
  }

  /** The content is lost: all that is left to do is to say so. */
  async #gone({ id, deliveries }: PendingEntry): Promise<void> {
    await this.group.acknowledge([id]);
    const error = `Entry ${id} of ${this.group.streamKey} was trimmed or deleted before it was handled`;
    this.settings.emit({ type: "dead", consumer: this.#consumer, id: undefined, attempts: deliveries, error });
  }

  /** Aborts when another may have the entry. */
  protected abstract lossOf(id: string): AbortController;

  /** Hands them on in order, as there is room; all of them are ours from now on. */
  protected async deliver(
    entries: readonly StreamEntry[],
    attemptsOf: (entry: StreamEntry) => number = () => 0,
  ): Promise<void> {
    this.#page.saw(entries.map(sizeOfEntry));
    const fresh = entries.filter(({ id }) => !this.held.has(id));
    const losses = fresh.map(({ id }) => this.lossOf(id));
    for (const [i, { id }] of fresh.entries()) this.held.add(id, undefined, losses[i]);
    for (const [i, entry] of fresh.entries()) {
      if (!this.#deliveries.hasRoom) await this.#deliveries.room();
      this.#handOn(entry, attemptsOf(entry), losses[i]!);
    }
  }

  #handOn({ id, fields }: StreamEntry, attempts: number, loss: AbortController): void {
    const { group, held, settings } = this;
    const consumer = this.#consumer;
    const survived = this.#onSurvived;
    const deadly = attempts >= settings.maxAttempts ? { broken: neverFinished(attempts) } : {};
    this.#deliveries.take({
      ...openDelivery(fields, (raw) => openEntry(raw, group.streamKey), brokenEntry),
      ...deadly,
      attempts,
      signal: loss.signal,
      done: () => held.done(id),
      failed: (count) => {
        survived?.();
        void group.failed(id, count).catch(() => undefined);
      },
      release: () => held.drop(id),
      async moveToDeadLetters(error, count) {
        const headers = deadHeaders(consumer, error, count);
        await group.moveToDeadLetters(id, settings.deadLetter(group.streamKey), deadEntry(fields, headers));
        held.drop(id);
      },
    });
  }

  protected recovered(): void {
    this.#outage.over();
  }

  async #take(): Promise<void> {
    try {
      await this.takeEntries();
    } catch (cause) {
      // The server has lost its data.
      if (this.settings.declare && isReply(cause, "NOGROUP")) await this.group.ensure(true).catch(() => undefined);
      throw explainRedis(cause);
    }
  }

  /** Errors are not reported here: the reading loop meets the same errors and reports them. */
  async #tend(): Promise<void> {
    const { clock } = this.settings;
    await this.keepEntries();
    if (clock.monotonic() < this.#sweepAt) return;
    await this.group.sweep(FORGET_MEMBERS_MS);
    this.#sweepAt = clock.monotonic() + FORGET_MEMBERS_MS / 24;
  }
}

function neverFinished(attempts: number): PermanentError {
  return new PermanentError(`This message was taken ${attempts} times and never finished`, {
    fix: "Look for what it does to the process that handles it",
  });
}
