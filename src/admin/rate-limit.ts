/** How many of a kind may begin in a second, and how many at once after a pause. */
export interface Allowance {
  readonly perSecond: number;
  readonly burst: number;
}

/** A bucket of permits that fills by itself. */
export class RateLimit {
  readonly #allowance: Allowance;
  readonly #now: () => number;
  #left: number;
  #at: number;

  constructor(allowance: Allowance, now: () => number = () => performance.now()) {
    this.#allowance = allowance;
    this.#now = now;
    this.#left = allowance.burst;
    this.#at = now();
  }

  /** 0: go on. Otherwise how many milliseconds to wait before the next try. */
  take(): number {
    const wait = this.wait();
    if (wait === 0) this.#left -= 1;
    return wait;
  }

  /** What `take` would give; takes nothing. */
  wait(): number {
    const { perSecond, burst } = this.#allowance;
    const now = this.#now();
    this.#left = Math.min(burst, this.#left + ((now - this.#at) / 1000) * perSecond);
    this.#at = now;
    return this.#left >= 1 ? 0 : Math.ceil(((1 - this.#left) / perSecond) * 1000);
  }
}
