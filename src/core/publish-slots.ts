import type { ClaimKind } from "./contracts.ts";

export type Place = "quick" | "long";

/** A message that is being sent. */
export interface SlotUse {
  place: Place;
  readonly startedAt: number;
  /** Called once when it takes much longer than others do; undefined: nothing is done about it. */
  onLong: (() => void) | undefined;
  /** It takes much longer than others do. */
  long: boolean;
}

/** Nothing that ends sooner than this counts as long. */
const LONG_MS = 25;
/** Times as long as messages usually take. */
const LONG_FACTOR = 4;
/** How many keys are remembered that went through. */
const GOOD_KEYS = 10_000;

/**
 * How many messages a publisher has in hand at once, over all its batches. New messages have the quick places. One that
 * takes much longer than others do moves to a long place, and messages that failed before are tried in long places only:
 * so that messages which fail slowly leave the quick places to all others. When the long places are taken too, keys that
 * have not gone through lately keep to half of the quick places.
 */
export class PublishSlots {
  readonly #limit: Readonly<Record<Place, number>>;
  readonly #used: Record<Place, number> = { quick: 0, long: 0 };
  /** In the order in which they began. */
  readonly #running = new Set<SlotUse>();
  readonly #listeners = new Set<() => void>();
  /** The last of them at the end. */
  readonly #goodKeys = new Set<string>();
  /** Messages that take long in quick places, because the long ones are taken. */
  #stuck = 0;
  #usualMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(quick: number, long: number = quick) {
    this.#limit = { quick, long };
  }

  /** So many messages take long that new ones would have to wait for them. */
  get clogged(): boolean {
    return this.#stuck > 0 && this.#stuck >= Math.ceil(this.#limit.quick / 2);
  }

  isGood(key: string): boolean {
    return this.#goodKeys.has(key);
  }

  /** Takes a place if there is one. */
  take(kind: ClaimKind, good: boolean): Place | undefined {
    const place = kind === "new" ? "quick" : "long";
    const limit = this.#stuck > 0 && place === "quick" && !good ? this.#limit.quick / 2 : this.#limit[place];
    if (this.#used[place] >= limit) return undefined;
    this.#used[place]++;
    return place;
  }

  /** Calls back, again and again until told otherwise, when there may be a place, or there is a clog. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Begins a message in a place that was taken. */
  begin(place: Place, onLong: (() => void) | undefined): SlotUse {
    const use = { place, startedAt: performance.now(), onLong, long: false };
    this.#running.add(use);
    if (onLong !== undefined && this.#timer === undefined) this.#watch();
    return use;
  }

  /** Ends a message; its place stays taken. */
  end(use: SlotUse, key: string | undefined, published: boolean): void {
    this.#running.delete(use);
    // The table of a set outlives what it held, and would keep the whole batch from the collector of garbage.
    use.onLong = undefined;
    if (published) this.#usualMs = this.#usualMs * 0.9 + (performance.now() - use.startedAt) * 0.1;
    if (key === undefined) return;
    this.#goodKeys.delete(key);
    if (!published) return;
    this.#goodKeys.add(key);
    if (this.#goodKeys.size > GOOD_KEYS) this.#goodKeys.delete(this.#goodKeys.values().next().value!);
  }

  free(place: Place): void {
    this.#used[place]--;
    if (this.#stuck > 0) this.#look();
    else this.#tell();
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
        this.#look();
        this.#watch();
      },
      // Messages that have taken too long already wait for a place.
      leftMs > 0 ? leftMs : LONG_MS,
    );
    this.#timer.unref();
  }

  /** Moves what takes long, and counts what cannot be moved. */
  #look(): void {
    const longAgo = performance.now() - this.#longMs;
    this.#stuck = 0;
    for (const use of this.#running) {
      if (use.startedAt > longAgo) break;
      if (use.onLong === undefined) continue;
      if (use.place === "quick" && this.#used.long < this.#limit.long) {
        this.#used.long++;
        this.#used.quick--;
        use.place = "long";
      }
      if (use.place === "quick") this.#stuck++;
      else this.#running.delete(use);
      if (!use.long) use.onLong();
      use.long = true;
    }
    this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** For handlers, each of which holds a connection of a pool: those that take long must leave some to all others. */
export function handlerSlots(concurrency: number): PublishSlots {
  return new PublishSlots(concurrency, Math.ceil(concurrency / 2));
}
