import type { Headers } from "./message.ts";

/** What people change in a store, and what is noted of it. */

/** One dead letter: of this relay, with this id or at this position. */
export interface LetterName {
  relay: string;
  id?: string;
  position?: bigint;
}

/**
 * Other contents for a dead letter. What is left out stays. `payload` is encoded as `enqueue` does, by the `contentType`
 * that the letter has then; `body` is taken as it is, and has to be JSON where the `contentType` says so, or says nothing.
 */
export interface LetterEdit {
  payload?: unknown;
  body?: string | Uint8Array;
  /**
   * All headers but those that say where the message came from (correlationId, causationId, causationPath, traceparent,
   * tracestate): these stay, and may be left out.
   */
  headers?: Headers;
}

/** Who changes something, and why. */
export interface Author {
  /** Default: the user of the database. */
  actor?: string;
  reason?: string;
  /** Requeues under one such name are one change, "redrive", with the sum of their counts. */
  redrive?: string;
}

export type ChangeAction = "requeue" | "discard" | "edit" | "pause" | "resume" | "rewind" | "drop" | "redrive" | "stop";

/** A redrive that was stopped before its end. */
export interface StoppedRedrive {
  relay?: string;
  /** What it was, such as its command. */
  what: string;
  requeued: number;
}

/** What was changed, by whom and why. Kept for a year. */
export interface Change {
  at: Date;
  /** The name given to `by`, else the user of the database. */
  actor: string;
  reason: string | null;
  action: ChangeAction;
  /** Null: of several relays. */
  relay: string | null;
  /** What was asked for: the choice of letters, the target of a rewind. */
  details: Record<string, unknown>;
  /** How many letters it was; null where nothing is counted. */
  count: number | null;
}

/** Which changes to show, newest first. */
export interface ChangeQuery {
  since?: Date;
  relay?: string;
  /** `next` of the page before. */
  after?: string;
  /** From 1 to 1,000. Default 100. */
  limit?: number;
}

export interface ChangePage {
  changes: Change[];
  /** Where the next page begins; null: there is no more. */
  next: string | null;
}
