import type { MessageSourceName, QueueSession, SessionState, Store } from "../core/contracts.ts";
import { describeError, errorCode, TxboxError } from "../core/errors.ts";
import type { RelayEvent } from "../core/events.ts";
import { SampleRecorder } from "../core/sample-recorder.ts";
import { uuidv7 } from "../core/uuid.ts";
import type { RelayOptions, RelaySettings } from "./relay-options.ts";
import { relaySettings } from "./relay-options.ts";
import type { RouteOutage } from "./route-outages.ts";
import type { RelayTotals, WorkLimit } from "./relay-worker.ts";
import { RelayWorker } from "./relay-worker.ts";

export interface DrainOptions {
  /** Stop claiming after this time. Default 60 s. */
  deadlineMs?: number;
  /** Stop after about this many messages, at the end of a batch. */
  max?: number;
}

export interface DrainResult extends RelayTotals {
  /** How many of the 64 lanes were this process's; with none, another process is at work or died a moment ago. */
  lanes: number;
}

export interface RelayState {
  running: boolean;
  totals: RelayTotals;
  session: SessionState | undefined;
  /** How long ago the loop that keeps the lease turned last; undefined while there is none. Above two minutes: it hangs. */
  turnedMsAgo: number | undefined;
  /** Parts of the target that are out: their messages wait, all others go on. */
  routesOut: readonly RouteOutage[];
}

/** Delivers what was enqueued. Start it in the application, or run it once with a deadline. */
export interface Relay extends AsyncDisposable {
  readonly name: string;
  /** Resolves when the relay runs, or was stopped meanwhile. Throws at once for what waiting cannot mend, such as a missing schema. */
  start(): Promise<void>;
  /**
   * Finishes or releases what is in hand, settles it, gives the lanes back and closes the publisher. Default deadline:
   * 10 s. Throws what closing the publisher threw; the relay is stopped nevertheless.
   */
  stop(options?: { deadlineMs?: number }): Promise<void>;
  /** Publishes what is there now and returns; for cron and serverless. Leaves the publisher open for the next time. */
  drainOnce(options?: DrainOptions): Promise<DrainResult>;
  state(): RelayState;
}

const MAINTENANCE_MS = 60_000;
const FIRST_MAINTENANCE_MS = 5000;
/** At least this long for giving back the lanes and closing the publisher. */
const GOODBYE_MS = 1000;

export function createRelay(options: RelayOptions): Relay {
  return new StandingRelay(relaySettings(options));
}

/** Where a relay is in its life; `failed` has ended by itself and may be started anew. */
type Life = "idle" | "starting" | "running" | "stopping" | "failed";

/**
 * From one start to the next. Work that a stop has left behind ends with the signals of its own run, and touches no
 * later run.
 */
interface Run {
  /** Its name as an owner of lanes: what an earlier run has sent, such as a leave, finds nothing of this one. */
  readonly owner: string;
  /** Nothing more is begun. */
  readonly stopping: AbortController;
  /** What is under way is given up. */
  readonly giveUp: AbortController;
  /** The lease is no longer kept. */
  readonly done: AbortController;
  /** It was told as started, and not yet as stopped. */
  told: boolean;
}

function newRun(relay: string): Run {
  const [stopping, giveUp, done] = [new AbortController(), new AbortController(), new AbortController()];
  return { owner: `${relay}-${process.pid}-${uuidv7()}`, stopping, giveUp, done, told: false };
}

class StandingRelay implements Relay {
  readonly #settings: RelaySettings;
  readonly #recorder: SampleRecorder;
  #life: Life = "idle";
  #starting: Promise<void> | undefined;
  #ending: Promise<void> | undefined;
  #run: Run;
  #worker: RelayWorker | undefined;
  #session: QueueSession | undefined;
  #sessionState: SessionState | undefined;
  #turnedAt: number | undefined;
  #tasks: Promise<unknown>[] = [];

  constructor(settings: RelaySettings) {
    const { store, name, emit } = settings;
    this.#run = newRun(name);
    const recorder = new SampleRecorder(store.history, { relay: name }, this.#run.owner);
    this.#recorder = recorder;
    this.#settings = {
      ...settings,
      emit: (event) => {
        record(recorder, event);
        emit(event);
      },
    };
  }

  get name(): string {
    return this.#settings.name;
  }

  async start(): Promise<void> {
    if (this.#life === "starting" || this.#life === "running") return this.#starting;
    // A stop that is under way comes first, whatever becomes of it.
    await this.#ending?.catch(() => undefined);
    if (this.#life === "failed") await this.#endFailed();
    if (this.#life !== "idle") return this.#starting;
    this.#starting = this.#startUp(this.#begin());
    return this.#starting;
  }

  /** What a failure has left behind ends by itself. */
  async #endFailed(): Promise<void> {
    await Promise.allSettled(this.#tasks);
    await this.#leave();
    if (this.#life === "failed") this.#life = "idle";
  }

  async #startUp(run: Run): Promise<void> {
    const { store } = this.#settings;
    try {
      await this.#join(run);
    } catch (error) {
      if (!this.#isStarting(run)) return;
      if (!mayPass(error, store)) {
        this.#life = "idle";
        throw error;
      }
      this.#report(error);
    }
    if (!this.#isStarting(run)) return;
    this.#life = "running";
    this.#tellStarted(run);
    this.#tasks = [this.#live(run)];
    if (this.#settings.maintenance) this.#tasks.push(this.#maintenanceLoop(run));
  }

  stop({ deadlineMs = 10_000 }: { deadlineMs?: number } = {}): Promise<void> {
    if (this.#life === "stopping") return this.#ending!;
    if (this.#life === "idle") return Promise.resolve();
    this.#life = "stopping";
    this.#ending = this.#end(this.#run, deadlineMs);
    return this.#ending;
  }

  async #end(run: Run, deadlineMs: number): Promise<void> {
    const { clock, publisher, deadLetters } = this.#settings;
    const { stopping, giveUp, done } = run;
    const endsAt = clock.monotonic() + deadlineMs;
    stopping.abort();
    const timer = setTimeout(() => giveUp.abort(), deadlineMs);
    const hardStop = new Promise<void>((resolve) => {
      // A publisher that ignores its signal is left behind: its messages go out again elsewhere.
      giveUp.signal.addEventListener("abort", () => setTimeout(resolve, Math.min(1000, deadlineMs)), { once: true });
    });
    const started = this.#starting?.catch(() => undefined);
    await Promise.race([Promise.all([started, ...this.#tasks]), hardStop]);
    clearTimeout(timer);
    done.abort();
    // A database or a broker that hangs must not keep the process.
    const leftMs = Math.max(GOODBYE_MS, endsAt - clock.monotonic());
    try {
      await Promise.all([within(leftMs, this.#leave()), within(GOODBYE_MS, this.#recorder.flush())]);
      await within(leftMs, Promise.all([publisher.close?.(), deadLetters?.close?.()]));
    } finally {
      this.#life = "idle";
      this.#tellStopped(run);
    }
  }

  async drainOnce({ deadlineMs = 60_000, max = Number.POSITIVE_INFINITY }: DrainOptions = {}): Promise<DrainResult> {
    if (this.#life === "failed") await this.#endFailed();
    if (this.#life !== "idle") {
      throw new TxboxError("invalid_option", "drainOnce was called on a relay that is running", {
        fix: "Use a relay of its own for drainOnce, or stop this one first",
      });
    }
    const run = this.#begin();
    const timer = setTimeout(() => run.stopping.abort(), deadlineMs);
    try {
      // All that is there now, which only polling can tell.
      await (this.#starting = this.#join(run, "polling"));
      // The relay was stopped meanwhile.
      if (run.done.signal.aborted) return { published: 0, retried: 0, dead: 0, lanes: 0 };
      const worker = this.#worker!;
      if (this.#isStarting(run)) this.#life = "running";
      this.#tellStarted(run);
      const work = this.#work(run, { untilEmpty: true, max });
      this.#tasks = [work];
      await work;
      return { ...worker.totals, lanes: this.#sessionState?.lanes ?? 0 };
    } finally {
      clearTimeout(timer);
      run.done.abort();
      if (this.#run === run) await Promise.all([this.#leave(), within(GOODBYE_MS, this.#recorder.flushIfDue())]);
      // A stop that came meanwhile ends it.
      if (this.#run === run && !this.#isIn("stopping")) {
        this.#life = "idle";
        this.#tellStopped(run);
      }
    }
  }

  state(): RelayState {
    const totals = this.#worker?.totals ?? { published: 0, retried: 0, dead: 0 };
    const running = this.#life === "running" || this.#life === "stopping";
    const turnedMsAgo = this.#turnedAt === undefined ? undefined : this.#settings.clock.monotonic() - this.#turnedAt;
    return {
      running,
      totals: { ...totals },
      session: this.#sessionState,
      turnedMsAgo,
      routesOut: this.#worker?.routesOut ?? [],
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Asked anew after every wait. */
  #isIn(life: Life): boolean {
    return this.#life === life;
  }

  #isStarting(run: Run): boolean {
    return this.#run === run && this.#isIn("starting");
  }

  #tellStarted(run: Run): void {
    const { name, emit } = this.#settings;
    run.told = true;
    emit({ type: "started", relay: name, owner: run.owner });
  }

  /** Once. Listeners take it that whatever was open, such as an outage, is over. */
  #tellStopped(run: Run): void {
    if (!run.told) return;
    run.told = false;
    this.#settings.emit({ type: "stopped", relay: this.#settings.name });
  }

  #begin(): Run {
    this.#life = "starting";
    this.#tasks = [];
    this.#run = newRun(this.name);
    this.#turnedAt = undefined;
    return this.#run;
  }

  async #live(run: Run): Promise<void> {
    const { leaseMs, clock } = this.#settings;
    const { signal } = run.stopping;
    while (!signal.aborted && this.#session === undefined) {
      this.#turnedAt = clock.monotonic();
      await clock.sleep(Math.min(1000, leaseMs / 3), signal);
      await this.#join(run).catch((error: unknown) => this.#report(error));
    }
    if (!run.done.signal.aborted && this.#session !== undefined) await this.#work(run);
  }

  async #join(run: Run, source: MessageSourceName = this.#settings.source): Promise<void> {
    const { store, name, leaseMs, start, streams, unordered, batch, maxParked, emit } = this.#settings;
    await store.migrator.check();
    const session = await store.queue.join({
      relay: name,
      owner: run.owner,
      leaseMs,
      start,
      streams,
      unordered,
      batch,
      maxParked,
      source,
      onNews: () => this.#worker?.wake(),
      onSourceEvent: emit,
    });
    if (run.done.signal.aborted) {
      // Stopped meanwhile: no other code would give these lanes back.
      await session.leave().catch(() => undefined);
      return;
    }
    this.#session = session;
    const { stopping, giveUp } = run;
    this.#worker = new RelayWorker(this.#settings, session, { stopping: stopping.signal, giveUp: giveUp.signal });
  }

  /** The lease is kept until the last batch in hand is settled. */
  async #work(run: Run, limit?: WorkLimit): Promise<void> {
    const tending = this.#tendLoop(run, this.#session!);
    await this.#worker!.run(limit);
    run.done.abort();
    await tending;
  }

  async #leave(): Promise<void> {
    // First, because `stop` may not wait for the rest: by then there may be another session.
    const session = this.#session;
    this.#session = undefined;
    this.#sessionState = undefined;
    // When this fails, another process takes the lanes once the lease runs out.
    await session?.leave().catch(() => undefined);
  }

  /** Keeps the lease and the share of lanes, on its own timer: a slow publisher must not cost the lease. */
  async #tendLoop(run: Run, session: QueueSession): Promise<void> {
    const { leaseMs, clock, name, emit } = this.#settings;
    const everyMs = Math.min(1000, leaseMs / 3);
    const { signal } = run.done;
    while (!signal.aborted) {
      let wait = everyMs;
      if (this.#session === session) this.#turnedAt = clock.monotonic();
      try {
        const state = await session.tend();
        if (this.#session === session) this.#noteState(state);
        const left = (session.nextScheduledAt() ?? 0) - clock.monotonic();
        // What was due already has just been brought in, or could not be.
        if (left > 0) wait = Math.min(everyMs, Math.max(5, left));
      } catch (error) {
        this.#report(error);
        if (errorCode(error) === "relay_dropped") {
          emit({ type: "failed", relay: name, error: describeError(error) });
          run.stopping.abort();
          if (this.#run === run && this.#life === "running") this.#life = "failed";
          return;
        }
      }
      await clock.sleep(wait, signal);
    }
  }

  #report(error: unknown): void {
    const { name, emit } = this.#settings;
    emit({ type: "store_error", relay: name, error: describeError(error), code: errorCode(error) });
  }

  #noteState(state: SessionState): void {
    const { name, emit } = this.#settings;
    const before = this.#sessionState;
    this.#sessionState = state;
    if (before?.lanes !== state.lanes) emit({ type: "lanes", relay: name, lanes: state.lanes });
    if ((before?.paused ?? false) !== state.paused) emit({ type: state.paused ? "paused" : "resumed", relay: name });
    if ((before?.full ?? false) !== state.full)
      emit({ type: state.full ? "full" : "not_full", relay: name, parked: state.parked });
  }

  async #maintenanceLoop({ stopping }: Run): Promise<void> {
    const { store, clock, name, emit } = this.#settings;
    const { signal } = stopping;
    await clock.sleep(FIRST_MAINTENANCE_MS, signal);
    while (!signal.aborted) {
      try {
        const report = await store.maintenance.run({ signal });
        if (report.rotated || report.droppedSegments.length > 0 || report.heldBackBy.length > 0) {
          emit({ type: "maintained", relay: name, report });
        }
      } catch (error) {
        this.#report(error);
      }
      await clock.sleep(MAINTENANCE_MS, signal);
    }
  }
}

function record(recorder: SampleRecorder, event: RelayEvent): void {
  if (event.type === "batch") {
    recorder.count("published", event.published);
    recorder.count("retried", event.retried);
    recorder.count("dead", event.dead);
    recorder.count("unavailable", event.unavailable);
  } else if ("error" in event) {
    // Nothing of a batch is settled while the whole target is out, so no batch tells of it.
    if (event.type === "outage") recorder.count("unavailable");
    recorder.error(event.error);
  }
}

/** Waits for the promise, but no longer than this. */
async function within(ms: number, promise: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Whether waiting may mend it: a database that is away, a standby that may be promoted. */
function mayPass(error: unknown, store: Store): boolean {
  if (error instanceof TxboxError) return error.retryable;
  const failure = store.classify(error);
  return failure === "unavailable" || failure === "conflict";
}
