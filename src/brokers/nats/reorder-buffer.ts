import type { Lost } from "./recover-lost.ts";
import type { HeldMessage } from "./nats-delivery.ts";

/**
 * Holds messages back until those that were lost are here again, then lets all of them go in the order of the stream.
 * By itself JetStream delivers lost ones after their time has run out, which is the longest that this waits.
 */
export class ReorderBuffer {
  readonly #held: HeldMessage[] = [];
  readonly #upTo: number;
  readonly #since: number;
  readonly #ackWaitMs: number;
  #missing: number;

  constructor(lost: Lost, now: number, ackWaitMs: number) {
    this.#missing = lost.count;
    this.#upTo = lost.upTo;
    this.#since = now;
    this.#ackWaitMs = ackWaitMs;
  }

  hold(message: HeldMessage): void {
    this.#held.push(message);
    if (message.sequence <= this.#upTo) this.#missing--;
  }

  /** One that was in hand when the others were found missing. */
  keep(message: HeldMessage): void {
    this.#held.push(message);
  }

  /** How many messages to ask for; beyond `prefetch` only once JetStream must deliver the lost ones first. */
  wants(now: number, prefetch: number): number {
    const late = now > this.#since + this.#ackWaitMs;
    return late || this.#held.length < prefetch ? Math.max(0, this.#missing) : 0;
  }

  isComplete(now: number): boolean {
    return this.#missing <= 0 || now > this.#since + 1.5 * this.#ackWaitMs + 1000;
  }

  /** The server's count says that fewer are missing: another process has acknowledged them. */
  correct(missing: number): void {
    this.#missing = Math.min(this.#missing, missing);
  }

  release(): HeldMessage[] {
    return this.#held.splice(0).sort((a, b) => a.sequence - b.sequence);
  }
}
