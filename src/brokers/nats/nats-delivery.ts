import { decodeEnvelope, fieldText, type Delivery } from "../../adapter/index.ts";
import { PermanentError } from "../../core/errors.ts";
import type { IncomingMessage } from "../../core/message.ts";
import type { NatsMessage } from "./nats-client.ts";
import { fieldsOf, headersOf, MSG_ID, NATS_TRANSPORT } from "./nats-headers.ts";

/** What a delivery's reply subject says: `$JS.ACK.<stream>.<consumer>.<count>.<sequence>.<delivery>.<time>.<pending>`. */
export interface DeliveryInfo {
  /** How often it has been delivered, this time included. */
  readonly count: number;
  /** Its place in the stream. */
  readonly sequence: number;
  /** When the stream took it, in nanoseconds: with the sequence it tells the message from any other. */
  readonly stamp: string;
}

export function deliveryInfo(reply: string): DeliveryInfo | undefined {
  const tokens = reply.split(".");
  if (tokens[0] !== "$JS" || tokens[1] !== "ACK") return undefined;
  // With a domain and an account before the stream there are two or three more.
  const at = tokens.length >= 11 ? 6 : 4;
  const [count, sequence] = [Number(tokens[at]), Number(tokens[at + 1])];
  if (!Number.isSafeInteger(count) || !Number.isSafeInteger(sequence)) return undefined;
  return { count, sequence, stamp: tokens[at + 3] ?? "" };
}

/** What is done with a message in hand. */
export interface MessageOwner {
  done(held: HeldMessage): void;
  moveToDeadLetters(held: HeldMessage, error: unknown, attempts: number): Promise<void>;
  release(held: HeldMessage): void;
  postpone(held: HeldMessage, delayMs: number): boolean;
}

/** A message that JetStream waits to hear about. */
export class HeldMessage implements Delivery {
  readonly message: IncomingMessage;
  readonly attempts: number;
  readonly signal: AbortSignal;
  readonly broken?: unknown;
  readonly sequence: number;
  readonly stamp: string;
  /** As it came, for the dead letters. */
  readonly raw: { readonly subject: string; readonly body: Uint8Array; readonly headers: Map<string, string[]> };
  /** Where to answer; a repeat brings a new one. */
  reply: string;
  readonly #owner: MessageOwner;

  constructor(message: NatsMessage, info: DeliveryInfo, attempts: number, signal: AbortSignal, owner: MessageOwner) {
    const { subject, data: body } = message;
    this.sequence = info.sequence;
    this.stamp = info.stamp;
    this.reply = message.reply ?? "";
    this.attempts = attempts;
    this.signal = signal;
    this.#owner = owner;
    let headers = new Map<string, string[]>();
    try {
      headers = headersOf(message);
      this.message = open(subject, body, headers);
    } catch (error) {
      this.message = { body, headers: {}, routingKey: subject };
      this.broken = error instanceof PermanentError ? error : unreadable(error);
    }
    this.raw = { subject, body, headers };
  }

  done(): void {
    this.#owner.done(this);
  }

  moveToDeadLetters(error: unknown, attempts: number): Promise<void> {
    return this.#owner.moveToDeadLetters(this, error, attempts);
  }

  release(): void {
    this.#owner.release(this);
  }

  postpone(delayMs: number): boolean {
    return this.#owner.postpone(this, delayMs);
  }
}

function open(subject: string, body: Uint8Array, headers: ReadonlyMap<string, string[]>): IncomingMessage {
  const fields = fieldsOf(headers);
  const givenId = fieldText(fields, MSG_ID, NATS_TRANSPORT);
  for (const name in fields) if (NATS_TRANSPORT.reserved?.test(name) === true) delete fields[name];
  const message = decodeEnvelope(fields, body, NATS_TRANSPORT);
  return { ...message, id: message.id ?? givenId, source: subject, routingKey: subject };
}

function unreadable(cause: unknown): PermanentError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new PermanentError(`The headers of this message cannot be read: ${why}`, { cause });
}
