import type { Message } from "../../core/message.ts";

/** So many at a time: an answer of the target must not wait until a whole batch is encoded. */
const SLICE = 50;

/** Encodes the messages of the next batch while the target is busy with the present one. */
export class SealedAhead<T extends object> {
  readonly #seal: (message: Message) => T;
  #messages: readonly Message[] | undefined;
  /** Of those, as many as there was time for. */
  #sealed: T[] = [];
  #idle = false;

  constructor(seal: (message: Message) => T) {
    this.#seal = seal;
  }

  /** These come next. */
  prepare(messages: readonly Message[]): void {
    this.#messages = messages;
    this.#sealed = [];
    if (this.#idle) this.#sealSome(this.#sealed);
  }

  /** All of the present batch is sent: what is left to do is to wait for the answers. */
  whileWaiting(): void {
    if (this.#idle) return;
    this.#idle = true;
    this.#sealSome(this.#sealed);
  }

  /** The messages of a batch by their places; sealing one may throw. */
  of(messages: readonly Message[]): (index: number) => T {
    const sealed = this.#messages === messages ? this.#sealed : [];
    if (this.#messages === messages) this.#messages = undefined;
    this.#idle = false;
    return (index) => sealed[index] ?? this.#seal(messages[index]!);
  }

  #sealSome(sealed: T[]): void {
    const messages = this.#messages;
    if (messages === undefined || !this.#idle || this.#sealed !== sealed) return;
    const end = Math.min(messages.length, sealed.length + SLICE);
    try {
      while (sealed.length < end) sealed.push(this.#seal(messages[sealed.length]!));
    } catch {
      // It comes up when they are published.
      return;
    }
    if (end < messages.length) setImmediate(() => this.#sealSome(sealed));
  }
}
