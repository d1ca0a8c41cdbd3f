import { backoffMs } from "../core/backoff.ts";
import type { Claim, Outcome, QueueSession } from "../core/contracts.ts";
import { describeError, errorCode } from "../core/errors.ts";
import { onEnqueued } from "../core/hint.ts";
import { PollPace } from "./poll-pace.ts";
import type { ClaimStop } from "./publish-claim.ts";
import { publishClaim } from "./publish-claim.ts";
import type { RelaySettings } from "./relay-options.ts";

/** Claims that may be published but not settled yet. */
const MAX_UNSETTLED = 3;
const STORE_BACKOFF = { baseMs: 100, maxMs: 5000 };

export interface RelayTotals {
  published: number;
  retried: number;
  dead: number;
}

export interface WorkLimit {
  /** End when the queue is empty, instead of waiting for more. */
  untilEmpty: boolean;
  /** End after this many published messages. */
  max: number;
}

/** The loop: claim → publish → settle. The next batch is read and the last one settled while one is being published. */
export class RelayWorker {
  readonly totals: RelayTotals = { published: 0, retried: 0, dead: 0 };
  readonly #settings: RelaySettings;
  readonly #session: QueueSession;
  readonly #stop: ClaimStop;
  readonly #pace: PollPace;
  readonly #unsettled = new Set<Promise<void>>();
  #prefetched: Promise<Claim | undefined> | undefined;
  #wake = new AbortController();
  #failures = 0;

  constructor(settings: RelaySettings, session: QueueSession, stop: ClaimStop) {
    this.#settings = settings;
    this.#session = session;
    this.#stop = stop;
    this.#pace = new PollPace(settings.maxPollMs);
  }

  async run(limit: WorkLimit = { untilEmpty: false, max: Number.POSITIVE_INFINITY }): Promise<void> {
    const { stopping } = this.#stop;
    const forget = onEnqueued(this.#settings.store, () => this.wake());
    const wake = () => this.wake();
    stopping.addEventListener("abort", wake);
    try {
      while (!stopping.aborted && this.totals.published < limit.max) {
        try {
          if (!(await this.#step()) && (await this.#idle(limit.untilEmpty))) break;
          this.#failures = 0;
        } catch (error) {
          await this.#recover(error);
        }
      }
    } finally {
      forget();
      stopping.removeEventListener("abort", wake);
    }
    await this.#prefetched?.catch(() => undefined);
    await this.#allSettled().catch(() => undefined);
  }

  /** Looks at the queue at once and keeps looking eagerly for a moment. */
  wake(): void {
    this.#pace.busy();
    this.#wake.abort();
  }

  /** One batch; false when there was none. */
  async #step(): Promise<boolean> {
    const askedAhead = this.#prefetched !== undefined;
    let claim = await this.#nextClaim();
    if (claim === undefined && (askedAhead || this.#unsettled.size > 0)) {
      // The store may wait for settles before it gives out more, and was asked while something was in hand.
      await this.#allSettled();
      claim = await this.#session.claim();
    }
    if (claim === undefined) return false;
    this.#pace.busy();
    this.#prefetched = this.#session.claim();
    // Its error comes up when it is awaited; until then it must not count as unhandled.
    this.#prefetched
      .then((next) => next !== undefined && this.#settings.publisher.prepare?.(next.messages))
      .catch(() => undefined);
    const startedAt = this.#settings.clock.monotonic();
    const outcomes =
      claim.messages.length === 0 ? [] : await publishClaim(claim, this.#session, this.#settings, this.#stop);
    if (outcomes.length > 0) this.#count(outcomes, this.#settings.clock.monotonic() - startedAt);
    if (outcomes.length > 0 || claim.messages.length === 0) this.#settle(claim, outcomes);
    while (this.#unsettled.size >= MAX_UNSETTLED) await Promise.race(this.#unsettled);
    return true;
  }

  async #nextClaim(): Promise<Claim | undefined> {
    const ahead = this.#prefetched;
    if (ahead === undefined) return this.#session.claim();
    this.#prefetched = undefined;
    return ahead;
  }

  #settle(claim: Claim, outcomes: readonly Outcome[]): void {
    const settled = this.#session.settle(claim, outcomes);
    this.#unsettled.add(settled);
    settled.then(
      () => this.#unsettled.delete(settled),
      // Kept: whoever waits for it next sees the error.
      () => undefined,
    );
  }

  async #allSettled(): Promise<void> {
    await Promise.all(this.#unsettled);
  }

  /** Waits for something to do; true when the loop should end instead. */
  async #idle(untilEmpty: boolean): Promise<boolean> {
    if (untilEmpty) return true;
    const due = this.#session.nextDueAt() ?? Number.POSITIVE_INFINITY;
    const wait = Math.min(this.#pace.next(), Math.max(0, due - this.#settings.clock.monotonic()));
    if (this.#wake.signal.aborted) this.#wake = new AbortController();
    await this.#settings.clock.sleep(wait, this.#wake.signal);
    return false;
  }

  async #recover(error: unknown): Promise<void> {
    const { name, clock, emit } = this.#settings;
    await this.#prefetched?.catch(() => undefined);
    this.#prefetched = undefined;
    await Promise.allSettled(this.#unsettled);
    this.#unsettled.clear();
    // A claim that was given up must come again before anything after it is settled.
    this.#session.abandon();
    if (errorCode(error) === "lease_lost") {
      emit({ type: "lease_lost", relay: name });
      return;
    }
    emit({ type: "store_error", relay: name, error: describeError(error), code: errorCode(error) });
    await clock.sleep(Math.max(20, backoffMs(++this.#failures, STORE_BACKOFF)), this.#stop.stopping);
  }

  #count(outcomes: readonly Outcome[], ms: number): void {
    const counts = { published: 0, retry: 0, dead: 0, waiting: 0 };
    for (const outcome of outcomes) counts[outcome.status]++;
    this.totals.published += counts.published;
    this.totals.retried += counts.retry;
    this.totals.dead += counts.dead;
    const { published, retry, dead, waiting } = counts;
    this.#settings.emit({ type: "batch", relay: this.#settings.name, published, retried: retry, dead, waiting, ms });
  }
}
