import type { Store } from "../core/contracts.ts";
import type { History, JobView, Overview } from "./page-api.ts";
import { PageFailure } from "./page-failure.ts";
import { pause, StoreReader } from "./store-reader.ts";
import { verdictOf } from "./verdict.ts";

const EVERY_MS = 1000;
/**
 * A look that takes long is followed by a pause so many times as long: an open page must not burden a busy database.
 */
const REST = 40;
const LONGEST_PAUSE_MS = 15_000;
const HISTORY_EVERY_MS = 10_000;
const HOUR_MS = 3_600_000;
const MOST_LISTENERS = 200;

export interface LiveEvent {
  readonly event: "overview" | "history";
  readonly data: string;
}

/**
 * One look at the stores for all pages that are open, at most once in a second; none while no page is open. A page that
 * comes gets what is known at once.
 */
export class LiveReadings {
  readonly #readers: readonly StoreReader[];
  readonly #jobs: () => JobView[];
  readonly #listeners = new Set<(event: LiveEvent) => void>();
  #running: AbortController | undefined;
  #reading: Promise<Overview> | undefined;
  #last: Overview | undefined;
  #historyAt = 0;

  constructor(stores: Readonly<Record<string, Store>>, jobs: () => JobView[]) {
    this.#readers = Object.entries(stores).map(([name, store]) => new StoreReader(name, store));
    this.#jobs = jobs;
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  /** The last reading when it is fresh, or a new one that all share who ask meanwhile. */
  async overview(): Promise<Overview> {
    if (this.#last !== undefined && Date.now() - this.#last.at < EVERY_MS) {
      return { ...this.#last, jobs: this.#jobs() };
    }
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  async history(): Promise<History> {
    await this.overview();
    return this.#history();
  }

  /** Ends with the function it gives. */
  listen(listener: (event: LiveEvent) => void): () => void {
    if (this.#listeners.size >= MOST_LISTENERS)
      throw new PageFailure(503, `More than ${MOST_LISTENERS} pages are open`, { retryAfterMs: 10_000 });
    this.#listeners.add(listener);
    if (this.#last !== undefined && Date.now() - this.#last.at < 10 * EVERY_MS) {
      listener(overviewEvent(this.#last));
      listener(historyEvent(this.#history()));
    }
    if (this.#running === undefined) {
      this.#running = new AbortController();
      void this.#run(this.#running.signal);
    }
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#stop();
    };
  }

  close(): void {
    this.#listeners.clear();
    this.#stop();
  }

  #stop(): void {
    this.#running?.abort();
    this.#running = undefined;
    this.#historyAt = 0;
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const began = performance.now();
      const overview = await this.overview();
      if (signal.aborted) return;
      this.#tell(overviewEvent(overview));
      if (Date.now() - this.#historyAt >= HISTORY_EVERY_MS) {
        this.#historyAt = Date.now();
        this.#tell(historyEvent(this.#history()));
      }
      const took = performance.now() - began;
      await pause(Math.min(LONGEST_PAUSE_MS, Math.max(EVERY_MS, took * REST)), signal);
    }
  }

  async #read(): Promise<Overview> {
    const stores = await Promise.all(this.#readers.map((reader) => reader.read()));
    this.#last = { at: Date.now(), verdict: verdictOf(stores), stores, jobs: this.#jobs() };
    return this.#last;
  }

  #history(): History {
    const until = Date.now();
    const since = until - HOUR_MS;
    const all = this.#readers.map((reader) => reader.history(since));
    const marks = all.flatMap((one) => one.marks).sort((a, b) => a.at - b.at);
    return { since, until, series: all.flatMap(({ series }) => series), marks };
  }

  #tell(event: LiveEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}

function overviewEvent(overview: Overview): LiveEvent {
  return { event: "overview", data: JSON.stringify(overview) };
}

function historyEvent(history: History): LiveEvent {
  return { event: "history", data: JSON.stringify(history) };
}
