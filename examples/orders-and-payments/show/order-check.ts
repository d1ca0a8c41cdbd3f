/** Every key counts 1, 2, 3 …; a repeat of what was there is allowed, a gap is not. */
export class OrderCheck {
  drained = 0;
  orderBreaks = 0;
  repeats = 0;
  readonly #last = new Map<string, number>();
  readonly #early = new Map<string, Set<number>>();

  saw({ key, n }: { key: string; n: number }): void {
    const last = this.#last.get(key) ?? 0;
    const early = this.#early.get(key);
    if (n <= last || early?.has(n) === true) {
      this.repeats++;
      return;
    }
    this.drained++;
    if (n === last + 1) {
      this.#last.set(key, this.#closeGap(key, n));
      return;
    }
    this.orderBreaks++;
    this.#early.set(key, (early ?? new Set()).add(n));
  }

  /** How far the key is complete now that `n` is there. */
  #closeGap(key: string, n: number): number {
    const early = this.#early.get(key);
    let last = n;
    while (early?.delete(last + 1) === true) last++;
    return last;
  }
}
