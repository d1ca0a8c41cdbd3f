/** How long to wait before the next look: at once when busy, then ever longer up to `maxMs`. */
export class PollPace {
  readonly #maxMs: number;
  #ms = 0;

  constructor(maxMs: number) {
    this.#maxMs = maxMs;
  }

  busy(): void {
    this.#ms = 0;
  }

  next(): number {
    this.#ms = this.#ms === 0 ? 1 : Math.min(this.#ms * 2, this.#maxMs);
    return Math.min(this.#ms, this.#maxMs);
  }
}
