import type { ClaimKind } from "./contracts.ts";

/** A message that is being sent. */
export interface SlotUse {
  readonly kind: ClaimKind;
  readonly startedAt: number;
  /** Called once when it takes much longer than others do; undefined: nothing is done about it. */
  readonly onLong: (() => void) | undefined;
  /** It no longer takes the place of a quick one. */
  long: boolean;
}

/** Nothing that ends sooner than this counts as long. */
const LONG_MS = 25;
/** Times as long as messages usually take. */
const LONG_FACTOR = 4;

/**
 * How many messages a publisher has in hand at once, over all its batches. New messages have the quick places. One that
 * takes much longer than others do moves to a long place, and messages that failed before are tried in long places only:
 * so that messages which fail slowly leave the quick places to all others.
 */
export class PublishSlots {
  readonly #limit: { readonly quick: number; readonly long: number };
  readonly #used = { quick: 0, long: 0 };
  /** In the order in which they began. */
  readonly #running = new Set<SlotUse>();
  readonly #waiting = new Set<() => void>();
  #usualMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(quick: number, long: number = quick) {
    this.#limit = { quick, long };
  }

  /** Takes a place if there is one. */
  take(kind: ClaimKind): boolean {
    const place = kind === "new" ? "quick" : "long";
    if (this.#used[place] >= this.#limit[place]) return false;
    this.#used[place]++;
    return true;
  }

  /** Calls back, again and again until told otherwise, when there may be a place. */
  onRoom(listener: () => void): () => void {
    this.#waiting.add(listener);
    return () => void this.#waiting.delete(listener);
  }

  /** Begins a message in a place that was taken. */
  begin(kind: ClaimKind, onLong: (() => void) | undefined): SlotUse {
    const use = { kind, startedAt: performance.now(), onLong, long: kind === "retry" };
    this.#running.add(use);
    if (onLong !== undefined && this.#timer === undefined) this.#watch();
    return use;
  }

  /** Ends a message; its place stays taken. */
  end(use: SlotUse, published: boolean): void {
    this.#running.delete(use);
    if (published) this.#usualMs = this.#usualMs * 0.9 + (performance.now() - use.startedAt) * 0.1;
  }

  free(place: "quick" | "long"): void {
    this.#used[place]--;
    if (place === "long") this.#moveLong();
    for (const listener of this.#waiting) listener();
  }

  get #longMs(): number {
    return Math.max(LONG_MS, this.#usualMs * LONG_FACTOR);
  }

  #watch(): void {
    const oldest = this.#running.values().next().value;
    if (oldest === undefined) return;
    const leftMs = oldest.startedAt + this.#longMs - performance.now();
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.#moveLong();
        this.#watch();
      },
      // Those that are too long already wait for a place.
      leftMs > 0 ? leftMs : LONG_MS,
    );
    this.#timer.unref();
  }

  #moveLong(): void {
    const longAgo = performance.now() - this.#longMs;
    for (const use of this.#running) {
      if (use.startedAt > longAgo) return;
      if (use.onLong === undefined) continue;
      if (!use.long) {
        if (this.#used.long >= this.#limit.long) continue;
        this.#used.long++;
        this.#used.quick--;
        use.long = true;
      }
      this.#running.delete(use);
      use.onLong();
      for (const listener of this.#waiting) listener();
    }
  }
}

/** For handlers, each of which holds a connection of a pool: those that take long must leave some to all others. */
export function handlerSlots(concurrency: number): PublishSlots {
  return new PublishSlots(concurrency, Math.ceil(concurrency / 2));
}
