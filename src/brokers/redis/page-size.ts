/** Whatever the sizes were before, no more bodies than these come unforeseen. */
const MOST = 32;
/** How quickly a large entry is forgotten, by page. */
const FADING = 0.9;

/**
 * How many entries to read at once. Redis does not tell sizes without the bodies, so it begins with one entry, and takes
 * more as long as the largest of late would fit so often.
 */
export class PageSize {
  #count = 1;
  #largest = 0;

  /** At least one, however little room there is. */
  next(freeEntries: number, freeBytes: number): number {
    const fitting = this.#largest === 0 ? this.#count : Math.floor(freeBytes / this.#largest);
    return Math.max(1, Math.min(this.#count, fitting, freeEntries));
  }

  saw(sizes: readonly number[]): void {
    if (sizes.length === 0) return;
    this.#largest = Math.max(this.#largest * FADING, ...sizes);
    this.#count = Math.min(MOST, Math.max(this.#count, 2 * sizes.length));
  }
}
