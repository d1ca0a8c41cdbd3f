import type { Contract } from "./contract.ts";
import type { FromJson } from "./from-json.ts";

/** Payload type by message type: `{ order_created: Order }`, as a type or an interface. */
export type EventMap = object;

/** The map of callers that name none: any type, any payload. */
export type AnyEvents = Record<string, unknown>;

/** A step of the chain of causes: which module handled what when it enqueued the next message. */
export type Cause = readonly [module: string, type: string];

/** Headers travel with the message; the named ones have a meaning, the rest is the user's. */
export interface Headers {
  correlationId?: string;
  /** The id of the message in whose handler this one was enqueued. */
  causationId?: string;
  /** The chain of causes before it, oldest first. */
  causationPath?: readonly Cause[];
  schemaVersion?: string | number;
  /** Of W3C trace context. `tracestate` belongs to it: both come from one place, or neither. */
  traceparent?: string;
  tracestate?: string;
  contentType?: string;
  [name: string]: unknown;
}

/** What a caller enqueues. */
export interface NewMessage<Type extends string = string, Payload = unknown> extends NewMessageFields<Type, Payload> {
  stream: string;
}

/** A message of a type with a contract, which says its stream. */
export interface NewContractMessage<Type extends string, Payload, Stream extends string> extends NewMessageFields<
  Type,
  Payload
> {
  /** The stream of the contract; it need not be given. */
  stream?: Stream;
}

export interface NewMessageFields<Type extends string, Payload> {
  type: Type;
  payload: Payload;
  /** Ordering key; messages with one key leave in order. Default: `aggregateId`; without either there is no order. */
  key?: string;
  aggregateType?: string;
  aggregateId?: string;
  headers?: Headers;
  /** Default: a new UUIDv7. A chosen id makes enqueue idempotent: the second one is dropped. */
  id?: string;
  /** Not delivered before this time. */
  deliverAt?: Date;
}

/** The message of a type; without one, the union of all messages that an event map allows. */
export type NewMessageOf<Events extends EventMap, Type extends keyof Events & string = keyof Events & string> = {
  [Each in Type]: NewMessageFor<Each, Events[Each]>;
}[Type];

type NewMessageFor<Type extends string, Payload> = 0 extends 1 & Payload
  ? NewMessage<Type, Payload>
  : [Payload] extends [Contract<infer Stream, infer Input>]
    ? NewContractMessage<Type, Input, Stream>
    : NewMessage<Type, Payload>;

/** The payload that a handler gets: what the schema gives, or of a plain type what JSON gives back of it. */
export type HandledPayload<Payload> = 0 extends 1 & Payload
  ? Payload
  : [Payload] extends [Contract<string, unknown, infer Output>]
    ? Output
    : FromJson<Payload>;

/** A message as stores hand it out and publishers get it: the body is never parsed on the way. */
export interface Message {
  readonly id: string;
  /** Given by the store; rises within a key. Travels with every repeat. */
  readonly position: bigint;
  readonly stream: string;
  readonly type: string;
  readonly key: string | null;
  readonly aggregateType: string | null;
  readonly aggregateId: string | null;
  /** JSON text, or bytes when the payload was bytes or `contentType` says it is not JSON. */
  readonly body: string | Uint8Array;
  readonly headers: Headers;
  readonly createdAt: Date;
}

/** A message on its way into a handler: anything may be missing when the producer knows nothing of txbox. */
export interface IncomingMessage {
  readonly id?: string | undefined;
  readonly position?: bigint | undefined;
  readonly stream?: string | undefined;
  readonly type?: string | undefined;
  readonly key?: string | null | undefined;
  readonly aggregateType?: string | null | undefined;
  readonly aggregateId?: string | null | undefined;
  readonly body: string | Uint8Array;
  readonly headers: Headers;
  readonly createdAt?: Date | undefined;
  /** Where the broker had it from, such as a topic: what its producer needs a right to write to, and cannot forge. */
  readonly source?: string | undefined;
  /** What the broker routed by; part of the content hash when there is no id. Default: the type. */
  readonly routingKey?: string | undefined;
}

/** What a handler gets: the message with its decoded payload. */
export interface HandledMessage<Type extends string = string, Payload = unknown> extends IncomingMessage {
  readonly id: string;
  readonly type: Type;
  readonly payload: Payload;
}
