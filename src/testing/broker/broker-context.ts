import type { Publisher, Subscriber } from "../../core/contracts.ts";
import type { IncomingMessage, Message } from "../../core/message.ts";
import type { ConformanceCase } from "../conformance.ts";

/** What a publisher or the target behind it may lack. */
export type PublisherFeature =
  /** The target can be made to refuse a single message: `refuse` is there. */
  | "refusal"
  /** There is a limit to the size of a message: `oversized` is there. */
  | "oversized"
  /** A message may have nowhere to go: `unroutable` is there. */
  | "unroutable"
  /** A part of the target can be out while the rest is there: `route` is there. */
  | "routes"
  /** The target can be taken away and brought back: `goDown` and `comeBack` are there. */
  | "outage"
  /** Connections can be broken while the target stays: `disconnect` is there. */
  | "reconnect"
  /** The target can be made to take messages and answer nothing: `hang` is there. */
  | "hanging"
  /** The publisher has `close`. */
  | "closing"
  /** It can speak CloudEvents: `cloudEvents` and `contentTypes` are there. */
  | "cloudEvents";

/** What one publisher case works with. */
export interface PublisherContext {
  readonly publisher: Publisher;
  /** A stream that only this case uses. */
  readonly stream: string;
  /** What has arrived on the stream, in order, seen by means of its own; waits until there are this many. */
  readonly arrived: (count: number) => Promise<readonly IncomingMessage[]>;
  /** From now on the target refuses the message of this id: `failed`, the next time only; `rejected`, always. */
  readonly refuse?: (id: string, how: "failed" | "rejected") => Promise<void>;
  /** A body that is too large. */
  readonly oversized?: () => string | Uint8Array;
  /** A stream that leads nowhere. */
  readonly unroutable?: () => string;
  /** A part of the target that can be taken away and brought back while the rest stays: a queue, a topic. */
  readonly route?: BrokenRoute;
  /** A publisher to the same target, with `envelope: "cloudevents"`. */
  readonly cloudEvents?: Publisher;
  /** The content types of what has arrived, where CloudEvents of this broker have them; waits like `arrived`. */
  readonly contentTypes?: (count: number) => Promise<readonly (string | undefined)[]>;
  readonly goDown?: () => Promise<void>;
  readonly comeBack?: () => Promise<void>;
  readonly disconnect?: () => Promise<void>;
  /** Until the function it gives is called. */
  readonly hang?: () => Promise<() => Promise<void>>;
}

export interface BrokenRoute {
  /** A stream that leads there, and nowhere else. */
  readonly stream: string;
  readonly goOut: () => Promise<void>;
  readonly comeBack: () => Promise<void>;
  /** What has arrived there, in order; waits until there are this many. */
  readonly arrived: (count: number) => Promise<readonly IncomingMessage[]>;
}

export type PublisherCase = ConformanceCase<PublisherContext, PublisherFeature>;

/** What a subscriber or its broker may lack. */
export type SubscriberFeature =
  /** What is not done is delivered again by the broker itself. */
  | "redelivery"
  /** Messages are kept while no subscriber takes them. */
  | "durable"
  /** Messages of a key come one after the other, in order. */
  | "keyOrder"
  /** They do so also when one of them has to be delivered again. */
  | "orderedRetry"
  /** A slow message of one key does not hold up another key. */
  | "parallel"
  /** Several subscribers share the messages of one queue. */
  | "competing"
  /** Messages may come from producers that know nothing of txbox: `sendForeign` is there. */
  | "foreign"
  /** Connections can be broken: `disconnect` is there. */
  | "reconnect"
  /** The broker can be killed and started again: `restart` is there. */
  | "restart"
  /** What cannot be handled is put aside: `deadLetters` is there. */
  | "deadLetters"
  /** It can be told how many bytes to hold at most: `subscriber` takes `prefetchBytes`. */
  | "byteLimit";

/** Failed attempts until a subscriber of these contexts puts a message aside. */
export const CONFORMANCE_ATTEMPTS = 5;

/** How much a subscriber may take; by default, what the adapter does by default. */
export interface SubscriberLimits {
  concurrency?: number;
  prefetch?: number;
  prefetchBytes?: number;
}

/** What one subscriber case works with. */
export interface SubscriberContext {
  /**
   * Another subscriber to the queue of this case, as another process has it; ended with the context. It gives up after
   * CONFORMANCE_ATTEMPTS and tries again within milliseconds.
   */
  readonly subscriber: (limits?: SubscriberLimits) => Subscriber;
  /** A stream that only this case uses and that leads to its queue. */
  readonly stream: string;
  /** Sends by means of its own; does not wait for the handlers. */
  readonly send: (messages: readonly Message[]) => Promise<void>;
  /** As a producer that knows nothing of txbox does, with headers of its own. */
  readonly sendForeign?: (body: Uint8Array, headers?: Readonly<Record<string, string>>) => Promise<void>;
  readonly disconnect?: () => Promise<void>;
  /** Kills the broker with SIGKILL and starts it again. */
  readonly restart?: () => Promise<void>;
  /** What has been put aside, seen by means of its own; waits until there are this many. */
  readonly deadLetters?: (count: number) => Promise<readonly AsideMessage[]>;
}

/** A dead letter as its broker has it. */
export interface AsideMessage {
  readonly body: Uint8Array;
  readonly headers: Readonly<Record<string, unknown>>;
}

export type SubscriberCase = ConformanceCase<SubscriberContext, SubscriberFeature>;
