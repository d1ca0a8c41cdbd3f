import { UnavailableError } from "../../core/errors.ts";
import type { NatsConnection } from "./nats-client.ts";
import type { NatsLink } from "./nats-link.ts";

/** What JetStream is told of a message: done, again, still at work, never again. */
export type AckWord = "+ACK" | "-NAK" | "+WPI" | "+TERM" | `-NAK {${string}`;

/** Sends answers to deliveries; those that say what became of a message are kept while the connection is down. */
export class NatsAnswers {
  readonly #connection: NatsConnection;
  readonly #link: NatsLink;
  readonly #failed: (error: UnavailableError) => void;
  #unsent: { reply: string; word: AckWord }[] = [];

  constructor(connection: NatsConnection, link: NatsLink, failed: (error: UnavailableError) => void) {
    this.#connection = connection;
    this.#link = link;
    this.#failed = failed;
  }

  /** False when it cannot be sent now. */
  say(reply: string, word: AckWord): boolean {
    if (this.#link.down !== undefined) return false;
    try {
      this.#connection.publish(reply, word);
      return true;
    } catch (cause) {
      this.#failed(new UnavailableError(`The NATS client takes nothing: ${(cause as Error).message}`, { cause }));
      return false;
    }
  }

  /** Now, or when the connection is back. */
  settle(reply: string, word: AckWord): void {
    if (!this.say(reply, word)) this.#unsent.push({ reply, word });
  }

  catchUp(): void {
    for (const { reply, word } of this.#unsent.splice(0)) this.settle(reply, word);
  }

  forget(): void {
    this.#unsent = [];
  }
}
