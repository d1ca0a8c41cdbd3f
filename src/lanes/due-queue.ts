/** A queue by time: adding and taking cost the logarithm of its length. */
export class DueQueue<T> {
  readonly #heap: { readonly at: number; readonly item: T }[] = [];

  get first(): { readonly at: number; readonly item: T } | undefined {
    return this.#heap[0];
  }

  get size(): number {
    return this.#heap.length;
  }

  add(at: number, item: T): void {
    const heap = this.#heap;
    const entry = { at, item };
    let i = heap.length;
    heap.push(entry);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (heap[parent]!.at <= at) break;
      heap[i] = heap[parent]!;
      i = parent;
    }
    heap[i] = entry;
  }

  /** Takes the first one out. */
  take(): { readonly at: number; readonly item: T } | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || heap.length === 0) return first;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && heap[child + 1]!.at < heap[child]!.at) child++;
      if (heap[child]!.at >= last!.at) break;
      heap[i] = heap[child]!;
      i = child;
    }
    heap[i] = last!;
    return first;
  }

  clear(): void {
    this.#heap.length = 0;
  }
}
