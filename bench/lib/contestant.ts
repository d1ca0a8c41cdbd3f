import type { ClientBase } from "pg";
import type { Shape } from "./shapes.ts";

export interface DrainOptions {
  /** How many messages are to be drained. */
  messages: number;
  /** Goes on where the relay of this name stopped, up to `messages`; else a new relay drains everything. */
  relay?: string;
  /** Messages per page, for those that have pages. */
  batch?: number;
}

export interface DrainResult {
  /** Messages that reached the handler or publisher; more than there were when some came twice. */
  handled: number;
  /** Messages that the contestant still counts as open afterwards. */
  left: number;
  /** From the start of the worker until everything was settled. */
  ms: number;
  /** CPU time of this process meanwhile, where it was measured. */
  cpuMs?: number;
  /** Messages per second between the first and the last page, start and end left out; where there are pages. */
  steady?: number;
}

export interface ConsumeResult {
  /** Messages whose transaction was committed; more than there were when some came twice. */
  handled: number;
  /** Messages that the broker still holds for the consumer afterwards. */
  unread: number;
  ms: number;
  cpuMs: number;
}

/** When each message came, as `[seq, monotonic time in ns]`. */
export type Times = [seq: number, ns: string][];

/** A running consumer that notes when each message first reached its handler. */
export interface Hearing {
  arrivals: () => Times;
  stop: () => Promise<void>;
}

/** What the benchmark may ask of those it compares. Each one lives in processes and a database of its own. */
export interface Contestant {
  setup: () => Promise<void>;
  /** Puts messages of 250 bytes there as fast as it goes. */
  fill?: (messages: number) => Promise<void>;
  drain?: (options: DrainOptions) => Promise<DrainResult>;
  listen?: () => Promise<Hearing>;
  /** Time (ms) until so many more messages have come to who listens. */
  hear?: (messages: number) => Promise<number>;
  /** Writes messages in the client's open transaction. */
  enqueue?: (client: ClientBase, seqs: readonly number[], shape: Shape) => Promise<void>;
  /** Puts messages there that were written long ago. */
  age?: (messages: number, shape: Shape) => Promise<void>;
  /** Puts messages into a broker, takes them from there and handles each in a transaction. */
  consume?: (messages: number) => Promise<ConsumeResult>;
  /** Writes a receipt and an order in one transaction. */
  receive?: (seq: number) => Promise<void>;
  /** How many messages it has stored in all, for checking. */
  stored?: () => Promise<number>;
  close?: () => Promise<void>;
}
