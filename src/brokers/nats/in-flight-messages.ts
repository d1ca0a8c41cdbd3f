import type { HeldMessage } from "./nats-delivery.ts";

const MAX_SETTLED = 20_000;

/** What this process has taken of a consumer: in hand, and settled lately. */
export class InFlightMessages {
  readonly #held = new Map<number, HeldMessage>();
  /** Sequence and stamp of those that were acknowledged; their repeats need no handling. */
  readonly #settled = new Map<number, string>();
  /** Given back, to come again after a while. */
  readonly #postponed = new Set<number>();
  /** How often a message was asked for again because its delivery was lost on the way here. */
  readonly #lost = new Map<number, number>();
  #bytes = 0;
  #life = new AbortController();

  /** Aborts when the consumer is another one than before: nothing that is in hand is known to it. */
  get signal(): AbortSignal {
    return this.#life.signal;
  }

  get size(): number {
    return this.#held.size;
  }

  /** Of the bodies in hand. */
  get bytes(): number {
    return this.#bytes;
  }

  [Symbol.iterator](): IterableIterator<HeldMessage> {
    return this.#held.values();
  }

  add(message: HeldMessage): void {
    this.#held.set(message.sequence, message);
    this.#bytes += message.raw.body.length;
    this.#postponed.delete(message.sequence);
  }

  get(sequence: number): HeldMessage | undefined {
    return this.#held.get(sequence);
  }

  remove(message: HeldMessage): void {
    this.#forget(message);
    this.#lost.delete(message.sequence);
  }

  #forget({ sequence, raw }: HeldMessage): void {
    if (this.#held.delete(sequence)) this.#bytes -= raw.body.length;
  }

  settle(message: HeldMessage): void {
    this.remove(message);
    this.#settled.set(message.sequence, message.stamp);
    if (this.#settled.size <= MAX_SETTLED) return;
    for (const oldest of this.#settled.keys()) {
      this.#settled.delete(oldest);
      break;
    }
  }

  postpone(message: HeldMessage): void {
    this.#forget(message);
    this.#postponed.add(message.sequence);
  }

  /** In hand, or to come again by itself. */
  accountsFor(sequence: number): boolean {
    return this.#held.has(sequence) || this.#postponed.has(sequence);
  }

  settledStamp(sequence: number): string | undefined {
    return this.#settled.get(sequence);
  }

  noteLost(sequence: number): void {
    if (this.#lost.size >= MAX_SETTLED) this.#lost.clear();
    this.#lost.set(sequence, this.timesLost(sequence) + 1);
  }

  timesLost(sequence: number): number {
    return this.#lost.get(sequence) ?? 0;
  }

  /** How many messages of the stream are accounted for, after the first and up to the second place. */
  countBetween(after: number, upTo: number): number {
    const between = (sequence: number): boolean => sequence > after && sequence <= upTo;
    let count = 0;
    for (const held of this.#held.keys()) if (between(held)) count++;
    for (const postponed of this.#postponed) {
      if (between(postponed)) count++;
      // It will not come again: it was taken from the stream, or another process has acknowledged it.
      else if (postponed <= after) this.#postponed.delete(postponed);
    }
    return count;
  }

  /** Forgets everything; what is still being handled is not acknowledged any more. */
  reset(): void {
    this.#life.abort();
    this.#life = new AbortController();
    this.#held.clear();
    this.#bytes = 0;
    this.#settled.clear();
    this.#postponed.clear();
    this.#lost.clear();
  }
}
