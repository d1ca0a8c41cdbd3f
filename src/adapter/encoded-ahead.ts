import type { Message } from "../core/message.ts";

/** So many at a time: an answer of the target must not wait until a whole batch is encoded. */
const SLICE = 50;

/** Encodes the messages of the next batch while the target is busy with the present one. */
export class EncodedAhead<T extends object> {
  readonly #encode: (message: Message) => T;
  #messages: readonly Message[] | undefined;
  /** Of those, as many as there was time for. */
  #encoded: T[] = [];
  #idle = false;

  constructor(encode: (message: Message) => T) {
    this.#encode = encode;
  }

  /** These come next. */
  prepare(messages: readonly Message[]): void {
    this.#messages = messages;
    this.#encoded = [];
    if (this.#idle) this.#encodeSome(this.#encoded);
  }

  /** All of the present batch is sent: what is left to do is to wait for the answers. */
  whileWaiting(): void {
    if (this.#idle) return;
    this.#idle = true;
    this.#encodeSome(this.#encoded);
  }

  /** The messages of a batch by their places; encoding one may throw. */
  of(messages: readonly Message[]): (index: number) => T {
    const encoded = this.#messages === messages ? this.#encoded : [];
    if (this.#messages === messages) this.#messages = undefined;
    this.#idle = false;
    return (index) => encoded[index] ?? this.#encode(messages[index]!);
  }

  #encodeSome(encoded: T[]): void {
    const messages = this.#messages;
    if (messages === undefined || !this.#idle || this.#encoded !== encoded) return;
    const end = Math.min(messages.length, encoded.length + SLICE);
    try {
      while (encoded.length < end) encoded.push(this.#encode(messages[encoded.length]!));
    } catch {
      // The error is thrown when they are published.
      return;
    }
    if (end < messages.length) setImmediate(() => this.#encodeSome(encoded));
  }
}
