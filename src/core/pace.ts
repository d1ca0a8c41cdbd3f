import { systemClock } from "./clock.ts";

/** So many a second, in small batches. */
export class Pace {
  /** How many may go at once. */
  readonly most: number;
  readonly #perMs: number;
  #nextAt = performance.now();

  constructor(perSecond: number, most: number) {
    this.most = Math.min(most, Math.max(1, Math.floor(perSecond / 10)));
    this.#perMs = perSecond / 1000;
  }

  /** Waits until so many more may go, or the signal aborts. */
  async turn(count: number, signal: AbortSignal | undefined): Promise<void> {
    const now = performance.now();
    const wait = this.#nextAt - now;
    this.#nextAt = Math.max(now, this.#nextAt) + count / this.#perMs;
    if (wait > 0) await systemClock.sleep(wait, signal);
  }
}
