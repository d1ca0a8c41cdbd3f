import type { Message } from "../../core/message.ts";

/** Encodes the messages of the next batch while the target is busy with the present one. */
export class SealedAhead<T> {
  readonly #seal: (message: Message) => T;
  #messages: readonly Message[] | undefined;
  #sealed: readonly T[] | undefined;
  #idle = false;

  constructor(seal: (message: Message) => T) {
    this.#seal = seal;
  }

  /** These come next. */
  prepare(messages: readonly Message[]): void {
    this.#messages = messages;
    this.#sealed = undefined;
    if (this.#idle) this.#sealAll();
  }

  /** All of the present batch is sent: what is left to do is to wait for the answers. */
  whileWaiting(): void {
    this.#idle = true;
    this.#sealAll();
  }

  /** The messages of a batch by their places; sealing one may throw. */
  of(messages: readonly Message[]): (index: number) => T {
    const sealed = this.#messages === messages ? this.#sealed : undefined;
    if (this.#messages === messages) this.#messages = this.#sealed = undefined;
    this.#idle = false;
    return sealed === undefined ? (index) => this.#seal(messages[index]!) : (index) => sealed[index]!;
  }

  #sealAll(): void {
    if (this.#messages === undefined || this.#sealed !== undefined) return;
    try {
      this.#sealed = this.#messages.map(this.#seal);
    } catch {
      // It comes up when they are published.
      this.#messages = undefined;
    }
  }
}
