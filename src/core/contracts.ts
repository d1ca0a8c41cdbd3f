import type { Admin, HealthCheck, History } from "./admin.ts";
import type { Cause, IncomingMessage, Message } from "./message.ts";

/**
 * Every seam of txbox. Stores implement writer, queue, ledger, migrator, admin and maintenance; brokers implement
 * publisher and subscriber. The relay, the outbox and the inbox know nothing else. What people look at is in admin.ts.
 */

// ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

/** A validated message: body serialised, id and lane given. */
export interface PreparedMessage {
  id: string;
  /** The caller chose the id, so enqueueing it twice must write it once. */
  idChosen: boolean;
  stream: string;
  type: string;
  key: string | null;
  /** Hash of the key modulo LANES. */
  lane: number;
  aggregateType: string | null;
  aggregateId: string | null;
  correlationId: string | null;
  body: string | Uint8Array;
  /** JSON text of the headers that have no column of their own. */
  headers: string;
  /** Bytes of body and headers. */
  size: number;
  deliverAt: Date | null;
}

export interface Enqueued {
  id: string;
  /** The id had been enqueued before; nothing was written this time. */
  duplicate: boolean;
}

/** Writes inside the caller's transaction, in as few round trips as the database allows; never opens one of its own. */
export interface Writer<Tx> {
  enqueue(tx: Tx, messages: readonly PreparedMessage[]): Promise<Enqueued[]>;
  /** Serialises writers of a key until the transaction ends; for callers that enqueue before they lock their rows. */
  lockKey(tx: Tx, stream: string, key: string): Promise<void>;
  /** Removes a message whose `deliverAt` has not come yet; false when it is too late or unknown. */
  cancel(tx: Tx, id: string): Promise<boolean>;
}

// ── The queue a relay works from ────────────────────────────────────────────────────────────────────────────────

export interface JoinOptions {
  relay: string;
  /** Unique for this process and start. */
  owner: string;
  leaseMs: number;
  /** Where a relay that does not exist yet begins. */
  start: "earliest" | "now";
  /** Only these streams; undefined: all. Fixed when the relay is created. */
  streams: readonly string[] | undefined;
  /** Streams whose messages need no order: a failed one holds up nothing. */
  unordered: readonly string[];
  batch: { messages: number; bytes: number };
  /** With more messages than this waiting behind failed ones, no new ones are claimed. */
  maxParked: number;
  /** How new messages come: the store is asked for them, or tells of them by a stream of its own. Default "polling". */
  source?: MessageSourceName;
  /** A stream has brought something: a relay that waits looks at once. */
  onNews?: () => void;
  onSourceEvent?: (event: SourceEvent) => void;
}

export type MessageSourceName = "polling" | "stream";

/** What happens to the stream of a relay that has it as its source. Whatever happens to it, messages go on coming. */
export type SourceEvent =
  /** Messages come by the stream from here on: after a scan, or from where the owner before had stopped. */
  | { type: "stream_started"; relay: string; from: "scan" | "resume" }
  /**
   * It ended, or could not be opened where it was to go on: a scan finds what it would have brought. `windowLost`: that
   * was gone from the database's own log, which may be too small.
   */
  | { type: "stream_lost"; relay: string; error: string; windowLost: boolean };

/** Entry to the queue: one session per relay process. */
export interface Queue {
  join(options: JoinOptions): Promise<QueueSession>;
}

/** New messages, or those of failed keys whose time has come again. */
export type ClaimKind = "new" | "retry";

/** Messages held under a lease until they are settled. */
export interface Claim {
  readonly kind: ClaimKind;
  readonly messages: readonly Message[];
  /** Failed attempts so far, by message; undefined: none of them has failed yet. */
  readonly attempts: readonly number[] | undefined;
  /** Errors of those attempts, by message, oldest first; undefined: none. */
  readonly errors?: readonly (readonly AttemptError[])[] | undefined;
  /** One message, tried alone because owners have died: if the next owner dies too, this message is to blame. */
  readonly alone: boolean;
  /** How often an owner died with this very message in hand; above 0 only for a message tried alone. */
  readonly crashes: number;
  /** The route that each message waits for, see `postponed`; undefined: none of them waits for one. */
  readonly routes?: readonly (string | undefined)[] | undefined;
}

/** A failed attempt: when, and why. */
export interface AttemptError {
  at: string;
  error: string;
}

/** What became of one message of a claim. */
export type Outcome =
  | { readonly status: "published" }
  | { readonly status: "retry"; readonly error: string; readonly delayMs: number; readonly attempts: number }
  /** `block`: its key waits until the dead letter is requeued or discarded. */
  | { readonly status: "dead"; readonly error: string; readonly attempts: number; readonly block: boolean }
  /** Its target is out: it waits with its key and no attempt is counted. Of a route, few messages are tried until one goes through. */
  | {
      readonly status: "postponed";
      readonly error: string;
      readonly delayMs: number;
      readonly route: string | undefined;
    }
  /** Not tried, because an earlier message of its key is not through. */
  | { readonly status: "waiting" }
  /** Its attempt goes on under the claim that `detach` gave: it waits with its key until that is settled. */
  | { readonly status: "running" };

/**
 * A relay process's hold on its lanes. Claims of the two kinds come and go beside each other; new ones may be fetched
 * ahead. Settling is fenced: after the lease went to another owner it throws `lease_lost` and changes nothing of what that
 * owner has by then. Time is the database's.
 */
export interface QueueSession {
  /** Monotonic time (ms) up to which claimed messages may be published. */
  readonly validUntil: number;
  /** New messages wake the relay at this moment: it need not look for them often. */
  readonly isTold: boolean;
  /** False once the claim is void: nothing of it may be published any more, and settling it throws `lease_lost`. */
  isCurrent(claim: Claim): boolean;
  /**
   * The next messages of this kind. Undefined for both kinds with nothing unsettled: all that was committed before the
   * calls and may go has been claimed.
   */
  claim(kind: ClaimKind): Promise<Claim | undefined>;
  /** Which messages of the claim may go out now; the others wait behind a failed one of their key. Ask right before publishing. */
  admit(claim: Claim): readonly boolean[] | "all";
  /**
   * One outcome per message. New claims are settled in the order they were claimed; retry claims in any order, since each
   * has its keys to itself. Failures count at once for `admit`; the promise resolves when all is written, and several
   * calls share one write. Fewer outcomes than messages settle the leading ones and end the session: only `leave` may
   * follow.
   */
  settle(claim: Claim, outcomes: readonly Outcome[]): Promise<void>;
  /**
   * A claim of its own for one message whose attempt takes long. The claim that it was part of is settled next, with
   * `running` for it; the new one is settled whenever the attempt ends.
   */
  detach(claim: Claim, index: number): Claim;
  /**
   * A message tried alone waits for its target: a death meanwhile is not its fault. `resumeAttempt` before the next
   * try.
   */
  pauseAttempt(claim: Claim): Promise<void>;
  resumeAttempt(claim: Claim): Promise<void>;
  /** This claim will not be settled: every claim in hand is void, and what is not settled is claimed again. */
  abandon(claim: Claim): void;
  /** Renews the lease, shares lanes with other processes, brings in what is due. Called on a timer. */
  tend(): Promise<SessionState>;
  /** Monotonic time (ms) at which a failed key may be tried again; undefined: there is none. */
  nextRetryAt(): number | undefined;
  /** Monotonic time (ms) at which the next scheduled message is due, if one is known. */
  nextScheduledAt(): number | undefined;
  /** Gives the lanes back at once, so that other processes need not wait for the lease to run out. */
  leave(): Promise<void>;
}

export interface SessionState {
  lanes: number;
  paused: boolean;
  /** Messages that wait behind failed ones. */
  parked: number;
  blockedKeys: number;
  /** No new messages are claimed, because too many are parked. */
  full: boolean;
}

// ── The inbox ledger ────────────────────────────────────────────────────────────────────────────────────────────

export interface Receipt {
  consumer: string;
  messageId: string;
  type: string;
  correlationId: string | null;
}

export type ReceiptStatus = "received" | "processed" | "failed";

/** Receipts in the handler's own transaction. */
export interface Ledger<Tx> {
  /** One transaction, committed when `run` resolves and rolled back when it throws; serialisation failures are retried. */
  transaction<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
  /** False when this message was processed before. A concurrent duplicate waits for the first to end. */
  receive(tx: Tx, receipt: Receipt, status: "received" | "processed"): Promise<boolean>;
  /**
   * Records a failed attempt outside the rolled-back transaction; how many there have been. Or else it was processed
   * after all: the answer to a commit can be lost, and another delivery can succeed meanwhile.
   */
  fail(receipt: Receipt, error: string): Promise<number | "processed">;
  /**
   * Whether a consumer counts receipts per source of its messages. `wanted` is kept for good when it has none yet; what is
   * kept already, or what its receipts show, wins.
   */
  keepScope?(consumer: string, wanted: ReceiptScope): Promise<ReceiptScope>;
}

/** "consumer": an id counts once, wherever it comes from. "source": once for each source. */
export type ReceiptScope = "consumer" | "source";

/** A quick memory of receipts in front of the ledger. It may forget; the ledger decides on whatever it does not know. */
export interface ReceiptFilter {
  /** True only for what was given to `remember`. Never rejects: false when it cannot tell soon. */
  seen(receipt: Receipt, status: "received" | "processed"): Promise<boolean>;
  /** Called after the receipt is committed. Never throws. */
  remember(receipt: Receipt, status: "received" | "processed"): void;
}

// ── Brokers ─────────────────────────────────────────────────────────────────────────────────────────────────────

export type PublishResult =
  | { readonly status: "published" }
  /** This message failed and may work later: an attempt is counted. */
  | { readonly status: "failed"; readonly error: unknown }
  /** This message can never work. */
  | { readonly status: "rejected"; readonly error: unknown }
  /**
   * The target is out, not the message's fault: no attempt is counted. With a `route` (a queue, a topic, a receiver) only
   * that is out: its messages wait, all others go on. `retryAfterMs`: the target asks to be left alone for so long.
   */
  | {
      readonly status: "unavailable";
      readonly error?: unknown;
      readonly route?: string | undefined;
      readonly retryAfterMs?: number | undefined;
    }
  /** Not sent, because an earlier message of its key in this batch did not go through. */
  | { readonly status: "held" };

/** What a publisher may ask, and tell of single messages, while a batch is under way. */
export interface PublishProgress {
  /** Whether these messages are sent for the first time, or again after a failure. */
  readonly kind: ClaimKind;
  /**
   * False once nothing more of this batch may be begun: the lease is over, the claim is void, or a stop has reached its
   * deadline. Ask right before each send; it is a comparison of clocks. After a pause of the process it knows at once.
   */
  mayBegin(): boolean;
  /**
   * May be called once per message before `publish` resolves, with the same result as there. `running` may come before
   * that: the message takes long, so the relay goes on without waiting for it, and every later message of its key in this
   * batch must be `held`. Absent: every message is waited for.
   */
  onResult?(index: number, result: PublishResult | { readonly status: "running" }): void;
}

/** Sends whole batches. A thrown error means that the target is out and nothing is known of any message. */
export interface Publisher {
  /** True: within a batch, once a message failed no later one of its key goes out. False: the relay sends one at a time per key. */
  readonly keepsKeyOrder: boolean;
  /** What it publishes to, as traces and metrics name it: "rabbitmq". Only for a broker whose client carries the headers. */
  readonly system?: string;
  /**
   * One result per message, in order. `signal` aborts when the lease is over or a stop has reached its deadline: begin
   * nothing more, and wait for nothing more. Its timer may be late, so ask `progress.mayBegin()` before each send. Two
   * batches may be under way at once, of different keys.
   */
  publish(
    messages: readonly Message[],
    signal: AbortSignal,
    progress?: PublishProgress,
  ): Promise<readonly PublishResult[]>;
  /** These are likely to be published next: time to encode them while others are on their way. Sends nothing, never throws. */
  prepare?(messages: readonly Message[]): void;
  /** Waits a short time for what is under way. The client that the application made stays open. */
  close?(): Promise<void>;
}

/** What the subscriber should do with a delivery. */
export type HandleResult =
  | { readonly status: "done" }
  | { readonly status: "failed"; readonly error: unknown }
  | { readonly status: "rejected"; readonly error: unknown }
  /** What it needs is out, or of it only the `route`; `retryAfterMs`: it asks to be left alone for so long. */
  | {
      readonly status: "unavailable";
      readonly error: unknown;
      readonly route?: string | undefined;
      readonly retryAfterMs?: number | undefined;
    };

export type Handle = (message: IncomingMessage, signal: AbortSignal) => Promise<HandleResult>;

/** Brings messages to a handler; acknowledges only what `handle` reports as done. */
export interface Subscriber {
  start(consumer: string, handle: Handle): Promise<void>;
  /** Stops taking messages and waits for those in hand. */
  stop(): Promise<void>;
}

// ── Keeping the store ───────────────────────────────────────────────────────────────────────────────────────────

export interface MigrationStep {
  version: number;
  name: string;
  /** What it runs, to be read or run by hand: SQL, or the database's commands. */
  script: string;
}

/** Where a migration is that changes tables in use. */
export interface MigrationProgress {
  version: number;
  name: string;
  /** What comes now. */
  title: string;
  /** How many times, as far as it is known. */
  left: number;
}

export interface MigrateOptions {
  onProgress?: ((progress: MigrationProgress) => void) | undefined;
}

/** Numbered forward migrations under a lock. */
export interface Migrator {
  /** Steps not applied yet; `migrate` applies them and returns those that this process applied. */
  pending(): Promise<MigrationStep[]>;
  migrate(options?: MigrateOptions): Promise<MigrationStep[]>;
  /** Throws `schema_missing`, `schema_outdated` or `schema_too_new`, naming the command to run. */
  check(): Promise<void>;
}

export interface MaintenanceReport {
  rotated: boolean;
  droppedSegments: string[];
  /** Relays that hold back retention; "(archive)" when a segment could not be archived. */
  heldBackBy: string[];
  /** Why a segment could not be archived: it is kept, and tried again at the next run. */
  archiveError?: string;
}

/** Rotation and retention; safe to run from many processes at once. */
export interface Maintenance {
  /** The signal gives up what takes long, such as writing an archive; the next run begins it anew. */
  run(options?: { signal?: AbortSignal }): Promise<MaintenanceReport>;
}

// ── The store ───────────────────────────────────────────────────────────────────────────────────────────────────

export interface StoreCapabilities {
  /** Several processes may share a relay. */
  sharedRelays: boolean;
  /** Writes can join the caller's transaction. */
  transactions: boolean;
  /** Several named relays read one log, each at its own pace, and can be rewound. */
  namedRelays: boolean;
  /** New messages can come by a stream: a relay may have `source: "stream"`. */
  streams: boolean;
}

/**
 * What an error of the database means: it is away or out of room (`unavailable`), it gave up this transaction for
 * another (`conflict`), it will refuse until an operator changes its set-up (`configuration`), it refused this
 * statement (`statement`). Undefined: not an error of this database.
 */
export type StoreFailure = "unavailable" | "conflict" | "configuration" | "statement";

/** Who may have brought an error about: only the store's own statements ran, or a handler's as well. */
export type FailureOrigin = "store" | "handler";

export interface Store<Tx = unknown> {
  readonly name: string;
  readonly capabilities: StoreCapabilities;
  readonly writer: Writer<Tx>;
  readonly queue: Queue;
  readonly ledger: Ledger<Tx>;
  readonly migrator: Migrator;
  readonly maintenance: Maintenance;
  readonly admin: Admin;
  /** Absent: the store keeps none. */
  readonly history?: History;
  /** What can be wrong with this database, beside what `diagnose` looks at in every store. */
  readonly checks?: readonly HealthCheck[];
  /**
   * With the origin `handler`, errors that a handler can cause by itself are no outage: a limit of its session, a
   * transaction that it made read-only, another server that it could not reach.
   */
  classify(error: unknown, origin?: FailureOrigin): StoreFailure | undefined;
  /** What stands for the transaction where there are none: `capabilities.transactions` is false. */
  readonly withoutTransaction?: Tx;
}

// ── Time ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Timers and monotonic time; replaced in tests. Wall-clock decisions are the database's. */
export interface Clock {
  monotonic(): number;
  /** Resolves after `ms`, or early when the signal aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export type { Cause };
export type * from "./admin.ts";
export type * from "./changes.ts";
export type * from "./search.ts";
