import { randomUUID } from "node:crypto";
import type { NatsConnection, NatsMessage, NatsSubscription } from "./nats-client.ts";

/** A waiter for answers, each known by a number of its own. */
export interface Awaiting {
  /** False when it is not the answer that is waited for: other subscribers of a subject may reply too. */
  answered(index: number, answer: NatsMessage): boolean;
}

/** One subscription for all answers: a request of the client's own costs a timer and a stack trace for each. */
export class AckInbox {
  readonly subject: string;
  readonly #waiting = new Map<string, { who: Awaiting; index: number }>();
  readonly #subscription: NatsSubscription;
  #count = 0;

  constructor(connection: NatsConnection, prefix: string) {
    this.subject = `${prefix}.${randomUUID()}`;
    this.#subscription = connection.subscribe(`${this.subject}.*`, {
      callback: (error, message) => {
        if (error === null) this.#answer(message);
      },
    });
  }

  /** The subject to have an answer sent to. */
  expect(who: Awaiting, index: number): string {
    const reply = `${this.subject}.${(this.#count++).toString(36)}`;
    this.#waiting.set(reply, { who, index });
    return reply;
  }

  forget(reply: string): void {
    this.#waiting.delete(reply);
  }

  end(): void {
    this.#waiting.clear();
    this.#subscription.unsubscribe();
  }

  #answer(message: NatsMessage): void {
    const waiting = this.#waiting.get(message.subject);
    if (waiting?.who.answered(waiting.index, message) === true) this.#waiting.delete(message.subject);
  }
}
