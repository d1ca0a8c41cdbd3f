import { randomUUID } from "node:crypto";
import { UnavailableError } from "../../core/errors.ts";
import type { NatsConnection, NatsMessage } from "./nats-client.ts";
import { statusOf } from "./nats-headers.ts";

const EXPIRES_MS = 30_000;
const HEARTBEAT_MS = 5000;

/** Asks a pull consumer for messages, one request at a time. */
export class PullRequests {
  /** Answers come here, each request's to a word of its own. */
  readonly inbox: string;
  readonly #connection: NatsConnection;
  readonly #subject: string;
  #count = 0;
  #open = 0;
  #heardAt = 0;
  #endedBySize = false;

  constructor(connection: NatsConnection, subject: string, inboxPrefix: string) {
    this.#connection = connection;
    this.#subject = subject;
    this.inbox = `${inboxPrefix}.${randomUUID()}`;
  }

  /** Messages that the present request may still bring. */
  get open(): number {
    return this.#open;
  }

  /** The next message was larger than what the last request had left. */
  get endedBySize(): boolean {
    return this.#endedBySize;
  }

  /** `maxBytes`: the server ends the request before a message that goes beyond it. */
  ask(batch: number, now: number, maxBytes?: number): void {
    this.#open = batch;
    this.#heardAt = now;
    this.#endedBySize = false;
    const limit = maxBytes === undefined ? {} : { max_bytes: maxBytes };
    const request = { batch, ...limit, expires: EXPIRES_MS * 1e6, idle_heartbeat: HEARTBEAT_MS * 1e6 };
    const reply = `${this.inbox}.${++this.#count}`;
    this.#connection.publish(this.#subject, JSON.stringify(request), { reply });
  }

  heard(now: number): void {
    this.#heardAt = now;
  }

  /** How long nothing was heard. */
  silence(now: number): number {
    return now - this.#heardAt;
  }

  /** The server sends a sign of life with every request that is open. */
  seemsDead(now: number): boolean {
    return this.#open > 0 && this.silence(now) > 3 * HEARTBEAT_MS;
  }

  /** A message came; true when the request is used up. */
  delivered(): boolean {
    return this.#open > 0 && --this.#open === 0;
  }

  /** A message that is none: true when the time of the request is over, an error when something is wrong. */
  status(message: NatsMessage): boolean | UnavailableError {
    const status = statusOf(message);
    if (status === undefined || status.code === 100 || message.subject !== `${this.inbox}.${this.#count}`) return false;
    this.#open = 0;
    if (status.code === 404 || status.code === 408) return true;
    if (status.code === 409 && /exceeds maxbytes|batch completed/i.test(status.description)) {
      this.#endedBySize = true;
      return true;
    }
    return new UnavailableError(`NATS ended the request: ${status.description} (${status.code})`);
  }

  forget(): void {
    this.#open = 0;
  }
}
