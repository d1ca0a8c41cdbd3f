import { backoffMs } from "../core/backoff.ts";
import type { Claim, Outcome, QueueSession } from "../core/contracts.ts";
import { describeError, errorCode } from "../core/errors.ts";
import { onEnqueued } from "../core/enqueue-signal.ts";
import { announceDead } from "./dead-letters.ts";
import { leaseSignal } from "./lease-signal.ts";
import { PollPace } from "./poll-pace.ts";
import type { ClaimStop, PublicationContext } from "./publish-claim.ts";
import { publishClaim } from "./publish-claim.ts";
import type { RelaySettings } from "./relay-options.ts";
import { RouteOutages, type RouteOutage } from "./route-outages.ts";
import { TargetOutage } from "./target-outage.ts";

/** Claims that may be published but not settled yet. */
const MAX_UNSETTLED = 3;
const STORE_BACKOFF = { baseMs: 100, maxMs: 5000 };
/** Other processes may make failed keys due, as by requeueing a dead letter. */
const LOOK_FOR_RETRIES_MS = 250;
/** Where the database tells of new messages, looking for them is for the case that something goes wrong. */
const LOOK_WHEN_TOLD_MS = 500;

/** Failed keys leave the database to new messages for twice as long as they have used it, but no longer than this. */
const MOST_REST_MS = 100;

/** Without a reason an error is made each time, with its stack. */
const WOKEN = "woken";

/** Losses of the lease that are told of within this time are one. */
const SAME_LOSS_MS = 1000;

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

/**
 * The loops: claim → publish → settle, one for new messages and one for those of failed keys, so that neither waits for
 * the other. The next new batch is read and the last one settled while one is being published.
 */
export class RelayWorker {
  readonly totals: RelayTotals = { published: 0, retried: 0, dead: 0 };
  readonly #settings: RelaySettings;
  readonly #session: QueueSession;
  readonly #stop: ClaimStop;
  readonly #context: PublicationContext;
  readonly #pace: PollPace;
  readonly #unsettled = new Set<Promise<void>>();
  /** Attempts that take long, beside the loops. */
  readonly #attempts = new Set<Promise<void>>();
  #prefetched: Promise<Claim | undefined> | undefined;
  #wake = new AbortController();
  #wakeRetry = new AbortController();
  #failures = 0;
  #newBatches = 0;
  #lostAt = Number.NEGATIVE_INFINITY;

  constructor(settings: RelaySettings, session: QueueSession, stop: ClaimStop) {
    this.#settings = settings;
    this.#session = session;
    this.#stop = stop;
    this.#pace = new PollPace();
    const [target, routes] = [new TargetOutage(settings), new RouteOutages(settings)];
    this.#context = { session, settings, stop, target, routes };
  }

  /** Parts of the target that are out, as far as this process has seen. */
  get routesOut(): RouteOutage[] {
    return this.#context.routes.list();
  }

  async run(limit: WorkLimit = { untilEmpty: false, max: Number.POSITIVE_INFINITY }): Promise<void> {
    const { stopping } = this.#stop;
    const forget = onEnqueued(this.#settings.store, () => this.wake());
    const wake = () => this.wake();
    stopping.addEventListener("abort", wake);
    try {
      if (limit.untilEmpty) await this.#drain(limit.max);
      else await Promise.all([this.#workOnNew(), this.#workOnFailed()]);
    } finally {
      forget();
      stopping.removeEventListener("abort", wake);
    }
    await this.#prefetched?.catch(() => undefined);
    await Promise.all(this.#attempts);
    await this.#allSettled().catch(() => undefined);
  }

  /** Looks at the queue at once and keeps looking eagerly for a moment. */
  wake(): void {
    this.#pace.busy();
    this.#wake.abort(WOKEN);
    this.#wakeRetry.abort(WOKEN);
  }

  async #workOnNew(): Promise<void> {
    const step = async () => {
      if (!(await this.#newBatch())) await this.#idle();
    };
    await this.#repeat(step, () => this.#forgetNew());
  }

  async #workOnFailed(): Promise<void> {
    const step = async () => {
      const newBefore = this.#newBatches;
      const usedMs = await this.#failedBatch();
      if (usedMs === undefined) await this.#untilRetry();
      else if (this.#newBatches > newBefore)
        await this.#settings.clock.sleep(Math.min(2 * usedMs, MOST_REST_MS), this.#stop.stopping);
    };
    await this.#repeat(step, () => Promise.resolve());
  }

  async #repeat(step: () => Promise<void>, forget: () => Promise<void>): Promise<void> {
    while (!this.#stop.stopping.aborted) {
      try {
        await step();
        this.#failures = 0;
      } catch (error) {
        await forget();
        await this.#recover(error);
      }
    }
  }

  /** All that may go now: new messages, what is due of failed keys, and again what that has set free. */
  async #drain(max: number): Promise<void> {
    const goesOn = () => !this.#stop.stopping.aborted && this.totals.published < max;
    for (let busy = true; busy && goesOn();) {
      busy = false;
      try {
        while (goesOn() && (await this.#newBatch())) busy = true;
        while (goesOn() && (await this.#failedBatch()) !== undefined) busy = true;
        busy ||= this.#attempts.size > 0;
        await Promise.all(this.#attempts);
        this.#failures = 0;
      } catch (error) {
        busy = true;
        await this.#forgetNew();
        await this.#recover(error);
      }
    }
  }

  /** One batch of new messages; false when there was none. */
  async #newBatch(): Promise<boolean> {
    const askedAhead = this.#prefetched !== undefined;
    let claim = await this.#nextClaim();
    if (claim === undefined && (askedAhead || this.#unsettled.size > 0)) {
      // The store may wait for settles before it gives out more, and was asked while something was in hand.
      await this.#allSettled();
      claim = await this.#session.claim("new");
    }
    if (claim === undefined) return false;
    this.#newBatches++;
    this.#pace.busy();
    this.#prefetched = this.#session.claim("new");
    // Its error is thrown when it is awaited; until then it must not count as unhandled.
    this.#prefetched
      .then((next) => next !== undefined && this.#settings.publisher.prepare?.(next.messages))
      .catch(() => undefined);
    this.#track(await this.#publish(claim));
    while (this.#unsettled.size >= MAX_UNSETTLED) await Promise.race(this.#unsettled);
    return true;
  }

  /** One batch of failed keys that are due; for how long it used the store. Undefined when there was none. */
  async #failedBatch(): Promise<number | undefined> {
    const { clock } = this.#settings;
    const at = this.#session.nextRetryAt();
    const startedAt = clock.monotonic();
    if (at === undefined || at > startedAt || this.#context.target.leftMs > 0) return undefined;
    const claim = await this.#session.claim("retry");
    if (claim === undefined) return undefined;
    const claimedAt = clock.monotonic();
    const { settled } = await this.#publish(claim);
    const publishedAt = clock.monotonic();
    await settled;
    return claimedAt - startedAt + clock.monotonic() - publishedAt;
  }

  async #nextClaim(): Promise<Claim | undefined> {
    const ahead = this.#prefetched;
    if (ahead === undefined) return this.#session.claim("new");
    this.#prefetched = undefined;
    return ahead;
  }

  /** Publishes and reports the outcomes; `settled` resolves when they are written. */
  async #publish(claim: Claim): Promise<{ settled: Promise<void> }> {
    const startedAt = this.#settings.clock.monotonic();
    try {
      const { outcomes, running } = await publishClaim(claim, this.#context);
      await this.#announceDead(claim, outcomes);
      if (outcomes.length > 0) this.#count(outcomes, this.#settings.clock.monotonic() - startedAt);
      for (const { index, outcome } of running) this.#follow(this.#session.detach(claim, index), outcome);
      // Asked to stop before any was done: leaving releases them.
      if (outcomes.length === 0 && claim.messages.length > 0) return { settled: Promise.resolve() };
      const settled = this.#session.settle(claim, outcomes);
      // What is written may have made a key ready to be tried again.
      if (claim.kind === "retry" || outcomes.some(({ status }) => status !== "published")) this.#wakeAfter(settled);
      return { settled };
    } catch (error) {
      // A claim that was given up must come again before anything after it is settled.
      this.#session.abandon(claim);
      throw error;
    }
  }

  /** Waits beside the loops for an attempt that takes long, and settles it by itself. */
  #follow(claim: Claim, outcome: Promise<Outcome>): void {
    const startedAt = this.#settings.clock.monotonic();
    const end = async (): Promise<void> => {
      const outcomes = [await outcome];
      await this.#announceDead(claim, outcomes);
      this.#count(outcomes, this.#settings.clock.monotonic() - startedAt);
      await this.#session.settle(claim, outcomes);
      this.#wakeRetry.abort(WOKEN);
    };
    // The session knows by itself when a settle could not be written; a claim that is void was given to others.
    const attempt = end().catch((error: unknown) => {
      // One that ended before its settle would hold its key for ever.
      this.#session.abandon(claim);
      if (errorCode(error) === "lease_lost") this.#tellLost();
      else this.#report(error);
    });
    this.#attempts.add(attempt);
    void attempt.then(() => this.#attempts.delete(attempt));
  }

  async #announceDead(claim: Claim, outcomes: Outcome[]): Promise<void> {
    if (outcomes.every(({ status }) => status !== "dead")) return;
    const { settings, session, stop } = this.#context;
    // Its copy for the target of dead letters may kill the process too: then no copy is sent.
    const silent = claim.crashes > settings.maxCrashes ? { ...settings, deadLetters: undefined } : settings;
    const lease = leaseSignal(session, claim, settings.clock, stop.giveUp);
    try {
      await announceDead(claim, outcomes, silent, lease);
    } finally {
      lease.dispose();
    }
  }

  #track({ settled }: { settled: Promise<void> }): void {
    this.#unsettled.add(settled);
    settled.then(
      () => this.#unsettled.delete(settled),
      // Kept: the next code that waits for it sees the error. That may take a while, and a lost lease is told at once.
      (error: unknown) => {
        if (errorCode(error) === "lease_lost") this.#tellLost();
      },
    );
  }

  #wakeAfter(settled: Promise<void>): void {
    settled.then(
      () => this.#wakeRetry.abort(WOKEN),
      () => undefined,
    );
  }

  async #allSettled(): Promise<void> {
    await Promise.all(this.#unsettled);
  }

  /** Waits for something new. */
  async #idle(): Promise<void> {
    if (this.#wake.signal.aborted) this.#wake = new AbortController();
    const { clock, maxPollMs } = this.#settings;
    const mostMs = this.#session.isTold ? Math.max(maxPollMs, LOOK_WHEN_TOLD_MS) : maxPollMs;
    const due = this.#session.nextScheduledAt() ?? Number.POSITIVE_INFINITY;
    const wait = Math.min(this.#pace.next(mostMs), Math.max(0, due - clock.monotonic()));
    await clock.sleep(wait, this.#wake.signal);
  }

  /** Waits until a failed key may be due. */
  async #untilRetry(): Promise<void> {
    if (this.#wakeRetry.signal.aborted) this.#wakeRetry = new AbortController();
    const { clock } = this.#settings;
    const left = (this.#session.nextRetryAt() ?? Number.POSITIVE_INFINITY) - clock.monotonic();
    // A key is due, but none was given: something else has to be settled first, or the target is out.
    const wait = Math.max(left > 0 ? left : 5, this.#context.target.leftMs);
    await clock.sleep(Math.min(wait, LOOK_FOR_RETRIES_MS), this.#wakeRetry.signal);
  }

  /** New claims that will not be settled come again. */
  async #forgetNew(): Promise<void> {
    const ahead = await this.#prefetched?.catch(() => undefined);
    this.#prefetched = undefined;
    if (ahead !== undefined) this.#session.abandon(ahead);
    await Promise.allSettled(this.#unsettled);
    this.#unsettled.clear();
  }

  async #recover(error: unknown): Promise<void> {
    const { clock } = this.#settings;
    const lost = errorCode(error) === "lease_lost";
    if (lost) this.#tellLost();
    else this.#report(error);
    // Lanes that are lost once are another's by now. Lost again and again, each load of them would be a write for nothing.
    if (++this.#failures === 1 && lost) return;
    await clock.sleep(Math.max(20, backoffMs(this.#failures, STORE_BACKOFF)), this.#stop.stopping);
  }

  /** Both loops and every attempt beside them find out: that is told once. */
  #tellLost(): void {
    const { clock, emit, name } = this.#settings;
    const now = clock.monotonic();
    if (now - this.#lostAt < SAME_LOSS_MS) return;
    this.#lostAt = now;
    emit({ type: "lease_lost", relay: name });
  }

  #report(error: unknown): void {
    const { name, emit } = this.#settings;
    emit({ type: "store_error", relay: name, error: describeError(error), code: errorCode(error) });
  }

  #count(outcomes: readonly Outcome[], ms: number): void {
    const counts = { published: 0, retry: 0, dead: 0, waiting: 0, postponed: 0, running: 0 };
    for (const outcome of outcomes) counts[outcome.status]++;
    this.totals.published += counts.published;
    this.totals.retried += counts.retry;
    this.totals.dead += counts.dead;
    const { published, retry, dead } = counts;
    const { postponed: unavailable } = counts;
    const waiting = counts.waiting + unavailable + counts.running;
    const { name: relay, emit } = this.#settings;
    emit({ type: "batch", relay, published, retried: retry, dead, waiting, unavailable, ms });
  }
}
