import type { ClaimKind, Enqueued, MaintenanceReport, PublishResult, SourceEvent } from "./contracts.ts";
import type { IncomingMessage, Message } from "./message.ts";

/**
 * Everything that txbox tells while it runs: the one vocabulary of metrics, traces, logs and `onEvent`. An event is told on
 * the channel `txbox:<part>:<type>`, an operation when it starts and when it ends. docs/events.md has the table.
 */

/** What every operation tells at its end, and what a listener may set at its start. */
export interface Ended {
  /** Set at the start by a listener, see `runWithin`: it calls `work`, which is the operation, in a context of its own. */
  within?: (work: () => unknown) => unknown;
  /** How long it took. */
  ms?: number;
  /** What it threw. */
  error?: unknown;
}

// ── Outbox ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** Told when a call of `enqueue` begins and when it ends; the transaction is the caller's and commits later, or never. */
export interface EnqueueOperation extends Ended {
  /** "postgres", "mongodb". */
  readonly store: string;
  /** A listener may fill this at the start: each message of the call gets these headers, unless it has its own. */
  readonly headers: Record<string, string>;
  /** At the end: what was written. */
  messages?: readonly EnqueuedMessage[];
}

export interface EnqueuedMessage extends Enqueued {
  stream: string;
  type: string;
  key: string | null;
  /** Bytes of body and headers. */
  size: number;
}

// ── Relay ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** What a relay tells its host. `batch` comes once per batch, everything else is rare. */
export type RelayEvent =
  | { type: "started"; relay: string; owner: string }
  | { type: "stopped"; relay: string }
  | { type: "lanes"; relay: string; lanes: number }
  | { type: "paused" | "resumed"; relay: string }
  /** New messages wait, because too many are parked. */
  | { type: "full" | "not_full"; relay: string; parked: number }
  | BatchEvent
  /** The target is out: nothing counts as an attempt until it is back. */
  | { type: "outage"; relay: string; error: string; attempt: number; delayMs: number }
  | { type: "recovered"; relay: string }
  /** A part of the target is out: its messages wait, no attempt is counted, and all others go on. */
  | { type: "route_out"; relay: string; route: string; error: string; attempt: number; delayMs: number }
  | { type: "route_back"; relay: string; route: string }
  | { type: "retry"; relay: string; id: string; position: bigint; attempts: number; delayMs: number; error: string }
  | { type: "dead"; relay: string; id: string; position: bigint; attempts: number; error: string }
  | { type: "lease_lost"; relay: string }
  /** The store could not be used; the relay tries again. */
  | { type: "store_error"; relay: string; error: string; code: string | undefined }
  | { type: "maintained"; relay: string; report: MaintenanceReport }
  | SourceEvent
  /** The relay cannot go on, for example because it was dropped. */
  | { type: "failed"; relay: string; error: string };

/** What became of the messages of a claim. */
export interface BatchEvent {
  type: "batch";
  relay: string;
  published: number;
  retried: number;
  dead: number;
  /** Not tried, since something before them has to go first, or tried and found their target out: no attempt is counted. */
  waiting: number;
  /** Waiting messages whose target is out. */
  unavailable: number;
  ms: number;
}

/** Told when messages are handed to the publisher, and when it has answered. */
export interface PublishOperation extends Ended {
  readonly relay: string;
  /** What the publisher publishes to: "rabbitmq", "kafka"; undefined when it does not say. */
  readonly system?: string | undefined;
  readonly kind: ClaimKind;
  readonly messages: readonly Message[];
  /** At the end, by message; absent when the publisher threw. Undefined: it has said nothing of that message. */
  results?: readonly (PublishResult | RunningResult | undefined)[];
}

/** An attempt that goes on beside the others. */
export interface RunningResult {
  readonly status: "running";
  /** Resolves when it has ended; never rejects. */
  readonly ended: Promise<PublishResult>;
}

// ── Subscriber ──────────────────────────────────────────────────────────────────────────────────────────────────

/** What a subscriber tells its host; all of it is rare. */
export type SubscriberEvent =
  | { type: "retry"; consumer: string; id: string | undefined; attempts: number; delayMs: number; error: string }
  /** Put aside as a dead letter; the consumer goes on. */
  | { type: "dead"; consumer: string; id: string | undefined; attempts: number; error: string }
  /** The broker, or what the handler needs, is out: nothing counts as an attempt until it is back. */
  | { type: "outage"; consumer: string; error: string; attempt: number; delayMs: number }
  | { type: "recovered"; consumer: string }
  /** It takes no more, and has nothing in hand: whether anything is out is no longer known. */
  | { type: "stopped"; consumer: string };

/** Told when a message was taken from a broker and its turn has come, and when the broker was told what became of it. */
export interface ReceiveOperation extends Ended {
  readonly consumer: string;
  /** The broker: "rabbitmq", "kafka"; undefined when the subscriber does not say. */
  readonly system?: string | undefined;
  readonly message: IncomingMessage;
  /** At the end. Also a dead letter has ended; one that was given back will come again. */
  result?: "ended" | "given back";
}

// ── Inbox ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** What became of a message: `skipped` has no handler here, `stored` will be handled by the local relay. */
export type Handled = "processed" | "stored" | "duplicate" | "skipped";

/** Told when a message comes to an inbox, and when it is known what became of it. */
export interface HandleOperation extends Ended {
  readonly consumer: string;
  /** "inline", "store" (into the own log, handled later) or "stored" (from the own log). */
  readonly how: "inline" | "store" | "stored";
  readonly message: IncomingMessage;
  /** At the end: what was done, or why it was not. */
  result?: Handled | "failed" | "rejected" | "unavailable";
}

/** What an inbox tells beside its operations; all of it is rare. */
export interface InboxEvent {
  /** Told with each try: the message waits, uncounted, for a process that knows its version. */
  type: "newer_version";
  consumer: string;
  id: string;
  messageType: string;
  /** Of the message. */
  version: number;
  /** The newest that this process knows. */
  known: number;
}

// ── Reconciler, maintenance, wake-ups ───────────────────────────────────────────────────────────────────────────

export interface Reconciled {
  /** Heads that the query gave. */
  found: number;
  /** Messages that were missing. */
  enqueued: number;
  /** Messages that had been enqueued before: under way, dead, or done without leaving a result. */
  known: number;
}

export type ReconcilerEvent =
  | ({ type: "reconciled"; ms: number } & Reconciled)
  /** The query or the database failed; it is tried again at the next turn. */
  | { type: "failed"; error: string };

/** What a run of maintenance tells. A relay, a command or the application may have asked for it. */
export type MaintenanceEvent =
  | { type: "done"; store: string; report: MaintenanceReport; ms: number }
  | { type: "failed"; store: string; error: string; ms: number };

export type WakeUpEvent =
  | { type: "wake_up_started" }
  /** The stream ended or could not be resumed: relays go on by polling. `again`: it is opened again after a while. */
  | { type: "wake_up_lost"; error: string; again: boolean };

// ── All of them ─────────────────────────────────────────────────────────────────────────────────────────────────

type EventsOf<Part extends string, Event extends { type: string }> = {
  [Type in Event["type"] as `txbox:${Part}:${Type}`]: Extract<Event, { type: Type }>;
};

type OperationOf<Name extends string, Told> = Record<`txbox:${Name}:start` | `txbox:${Name}:end`, Told>;

/** What is told on each channel. */
export type Channels = OperationOf<"outbox:enqueue", EnqueueOperation> &
  OperationOf<"relay:publish", PublishOperation> &
  OperationOf<"subscriber:receive", ReceiveOperation> &
  OperationOf<"inbox:handle", HandleOperation> &
  EventsOf<"relay", RelayEvent> &
  EventsOf<"subscriber", SubscriberEvent> &
  EventsOf<"inbox", InboxEvent> &
  EventsOf<"reconciler", ReconcilerEvent> &
  EventsOf<"maintenance", MaintenanceEvent> &
  EventsOf<"store", WakeUpEvent>;
