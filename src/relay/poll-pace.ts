/** How long to wait before the next look: at once when busy, then ever longer. */
export class PollPace {
  #ms = 0;

  busy(): void {
    this.#ms = 0;
  }

  next(mostMs: number): number {
    this.#ms = this.#ms === 0 ? 1 : Math.min(this.#ms * 2, mostMs);
    return this.#ms;
  }
}
