import type { History, NewSample, SampleCounts, SampleOf } from "./contracts.ts";
import { NO_COUNTS, SAMPLE_COUNTS } from "./sample-counts.ts";

/** At most one write in this time. */
const EVERY_MS = 10_000;
/** A store that refuses samples is asked less and less often. */
const MAX_PAUSE_MS = 600_000;

/**
 * Adds up what a relay or a consumer does and writes it to the store's history every ten seconds, if anything happened. A
 * write that fails costs nothing and delays nothing: its figures go along with the next.
 */
export class SampleRecorder {
  readonly #history: History | undefined;
  readonly #of: SampleOf;
  readonly #owner: string;
  #counts: SampleCounts = { ...NO_COUNTS };
  #error: { error: string; at: number } | undefined;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;
  #pauseMs = EVERY_MS;
  #writtenAt = Number.NEGATIVE_INFINITY;

  constructor(history: History | undefined, of: SampleOf, owner: string) {
    this.#history = history;
    this.#of = of;
    this.#owner = owner;
  }

  count(what: keyof SampleCounts, by = 1): void {
    if (this.#history === undefined || by === 0) return;
    this.#counts[what] += by;
    this.#plan();
  }

  error(error: string): void {
    if (this.#history === undefined) return;
    this.#error = { error, at: performance.now() };
    this.#plan();
  }

  /** Writes what is left, unless there was a write a moment ago: then it goes along with the next. Never throws. */
  async flushIfDue(): Promise<void> {
    if (performance.now() - this.#writtenAt >= EVERY_MS) await this.flush();
  }

  /** Writes what is left. Never throws. */
  async flush(): Promise<void> {
    await this.#writing;
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    await this.#write();
  }

  #plan(): void {
    // No code waits for it, and it keeps no process alive.
    this.#timer ??= setTimeout(() => void this.#write(), this.#pauseMs).unref();
  }

  #write(): Promise<void> {
    this.#timer = undefined;
    this.#writing ??= this.#record().finally(() => (this.#writing = undefined));
    return this.#writing;
  }

  async #record(): Promise<void> {
    const [counts, error] = [this.#counts, this.#error];
    [this.#counts, this.#error] = [{ ...NO_COUNTS }, undefined];
    this.#writtenAt = performance.now();
    const lastError = error && { error: error.error, agoMs: Math.round(performance.now() - error.at) };
    const sample: NewSample = { ...counts, of: this.#of, owner: this.#owner, lastError };
    try {
      await this.#history?.record(sample);
      this.#pauseMs = EVERY_MS;
    } catch {
      this.#pauseMs = Math.min(MAX_PAUSE_MS, this.#pauseMs * 2);
      for (const name of SAMPLE_COUNTS) this.#counts[name] += counts[name];
      this.#error ??= error;
      this.#plan();
    }
  }
}
