import type { Message, Publisher, Subscriber } from "../../src/index.ts";

/** Messages handled at once, and taken from the broker before they are: the subscribers' defaults, for both sides. */
export const CONCURRENCY = 10;
export const PREFETCH = 200;
/** The consumer's name: group, durable consumer or queue. */
export const CONSUMER = "payments";

/** What a hand-written consumer reads off a message. */
export interface Delivered {
  id: string;
  body: string;
}

/** Publishes a part of the messages and waits for all acknowledgements. */
export type PublishRaw = (from: number, to: number) => Promise<unknown>;

/** A broker, once with txbox and once with nothing but its client. */
export interface Broker extends AsyncDisposable {
  /** An empty place for the messages, with a consumer that has read nothing yet. */
  reset(): Promise<void>;
  /** Messages that have arrived since. */
  arrived(): Promise<number>;
  /** Messages that the consumer has not acknowledged. */
  unread(): Promise<number>;
  publisher(): Promise<Publisher>;
  subscriber(): Promise<Subscriber>;
  /** The client at its best, with everything about the messages made ready beforehand. */
  rawPublisher(messages: readonly Message[]): Promise<PublishRaw>;
  /** Acknowledges each message when `handle` is done; returns what stops it. */
  rawConsumer(handle: (message: Delivered) => Promise<void>): Promise<() => Promise<void>>;
}
