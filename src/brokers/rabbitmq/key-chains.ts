import type { Keyed } from "../../adapter/index.ts";

const NONE = -1;
/** Enough to keep the server busy until it confirms, and few enough that a chain of several is through when all is. */
const WINDOW = 256;

/**
 * The messages of a batch as chains, one for each key: a message may go when the one before it is through. The longest
 * chains go first, because nothing can shorten the time they take.
 */
export class KeyChains {
  /** By message: the next one of its key. */
  readonly #next: Int32Array;
  /** By message: how many of its key are left from here. */
  readonly #length: Int32Array;
  /** What may go, by the length of the chain. */
  readonly #ready: number[][] = [];
  readonly #from: number[] = [];
  readonly #longest: number;
  #count = 0;

  constructor(messages: readonly Keyed[]) {
    const count = messages.length;
    this.#next = new Int32Array(count).fill(NONE);
    this.#length = new Int32Array(count).fill(1);
    const heads = new Set<number>();
    const followers = new Map<string, Map<string, number>>();
    let longest = 1;
    for (let i = count - 1; i >= 0; i--) {
      heads.add(i);
      const { stream = "", key } = messages[i]!;
      if (key == null) continue;
      let following = followers.get(stream);
      if (following === undefined) followers.set(stream, (following = new Map()));
      const after = following.get(key);
      following.set(key, i);
      if (after === undefined) continue;
      heads.delete(after);
      this.#next[i] = after;
      const length = (this.#length[i] = this.#length[after]! + 1);
      if (length > longest) longest = length;
    }
    this.#longest = longest;
    for (let length = 0; length <= longest; length++) {
      this.#ready.push([]);
      this.#from.push(0);
    }
    for (const i of [...heads].toReversed()) this.add(i);
  }

  /** How many are ready. */
  get size(): number {
    return this.#count;
  }

  /** How many may be under way. The next of a long chain must not wait behind all the short ones. */
  get window(): number {
    return this.#longest === 1 ? Number.POSITIVE_INFINITY : WINDOW;
  }

  add(i: number): void {
    this.#ready[this.#length[i]!]!.push(i);
    this.#count++;
  }

  take(): number | undefined {
    if (this.#count === 0) return undefined;
    for (let length = this.#longest; length > 0; length--) {
      const i = this.#ready[length]![this.#from[length]!];
      if (i === undefined) continue;
      this.#from[length]!++;
      this.#count--;
      return i;
    }
    return undefined;
  }

  /** It is through: the next of its key may go. */
  follow(i: number): void {
    const next = this.after(i);
    if (next !== undefined) this.add(next);
  }

  /** The next of its key. */
  after(i: number): number | undefined {
    const next = this.#next[i]!;
    return next === NONE ? undefined : next;
  }
}
