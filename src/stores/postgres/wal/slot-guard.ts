import type { Clock } from "../../../core/contracts.ts";
import type { SqlRunner } from "../postgres-client.ts";
import type { Names } from "../postgres-names.ts";
import { endOfLog } from "./anchor-sql.ts";
import type { Lsn } from "./pgoutput.ts";
import { MOST_BEHIND, type RelaySlot } from "./relay-slot.ts";
import { requireStreamable, unfitPublication } from "./wal-refusal.ts";
import { lookAtSender, type SlotView } from "./wal-slot.ts";
import type { WalStream } from "./wal-stream.ts";

export interface SlotGuardOptions {
  readonly sql: SqlRunner;
  readonly names: Names;
  readonly clock: Clock;
  readonly slot: RelaySlot;
}

export interface Finding {
  /**
   * `not read`: the slot of this stream has another reader, or none. `behind`: polling would be faster. `not sent`:
   * the server keeps back what it has. `unused`: nothing reads the slot, and nothing will for the time being. `stop`: why the stream has to end. `giveUp`: why the slot has to.
   */
  readonly verdict:
    | "well"
    | "not read"
    | "behind"
    | "not sent"
    | "unused"
    | { readonly stop: string }
    | { readonly giveUp: string };
  /** The server is set up for streams. */
  readonly isSetUp: boolean;
  /** The slot has a reader. */
  readonly isRead: boolean;
}

/** When no message goes out for this long, the slot is given up: polling costs the server nothing while it waits. */
export const STUCK_MS = 30_000;
const GUARD_MS = 5000;
/** Sooner, when it may be that the stream is behind. */
const DOUBTED_MS = 2000;
/** A large transaction of others may take the server a moment. */
const KEPT_WAITING_MS = 4000;

export const SYNCHRONOUS =
  "The server takes the relay for a synchronous standby, and every commit would wait for it. Name the standbys in synchronous_standby_names, without the application_name of the relay";

/** Sees to it that a slot keeps no more of the server's log than it may, and none without a reader that comes. */
export class SlotGuard {
  readonly #options: SlotGuardOptions;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #pausedSince: number | undefined;
  #pollsSince: number | undefined;
  /** What the server had left to send of this stream, far too much, at the last look. */
  #unsent: { readonly stream: WalStream; readonly bytes: number } | undefined;
  /** Not all that the server has on disk had come at some look. This is where its log ended then. */
  #missing: { readonly stream: WalStream; readonly end: Lsn; readonly at: number } | undefined;

  constructor(options: SlotGuardOptions) {
    this.#options = options;
  }

  /** Whether the relay is paused. */
  paused(isPaused: boolean): void {
    this.#pausedSince = isPaused ? (this.#pausedSince ?? this.#now) : undefined;
  }

  /** Whether this process has all lanes, and no stream that is open or about to be. */
  polls(isPolling: boolean): void {
    this.#pollsSince = isPolling ? (this.#pollsSince ?? this.#now) : undefined;
  }

  get isPaused(): boolean {
    return this.#pausedSince !== undefined;
  }

  get isPausedForLong(): boolean {
    return this.#isLong(this.#pausedSince);
  }

  get isDue(): boolean {
    return this.#now - this.#lookedAt >= ((this.#unsent ?? this.#missing) ? DOUBTED_MS : GUARD_MS);
  }

  /** `stream`: the one of this process. `isWanted`: every process of the relay wants to stream. */
  async look(stream: WalStream | undefined, isWanted: boolean): Promise<Finding> {
    this.#lookedAt = this.#now;
    const { slot: its, names } = this.#options;
    const view = await its.look();
    const verdict = await this.#verdictOn(view, stream, isWanted);
    const isRead = view.slot?.activePid !== undefined;
    return { verdict, isSetUp: isSetUp(view, names, await its.name()), isRead };
  }

  async #verdictOn(view: SlotView, stream: WalStream | undefined, isWanted: boolean): Promise<Finding["verdict"]> {
    const { slot } = view;
    if (stream !== undefined) {
      if (view.publication !== "ready")
        return { stop: unfitPublication(this.#options.names, view.publication).message };
      if (!stream.isReadBy(slot?.activePid)) return "not read";
      const { connection } = stream;
      const sender = await lookAtSender(this.#options.sql, connection.processId, connection.received);
      // The server knows that only after it has heard from the reader.
      if (sender?.isSynchronous === true) return { stop: SYNCHRONOUS };
      if (sender !== undefined && this.#isFallingBehind(stream, sender.unsent)) return "behind";
      if (await this.#isKeptWaiting(stream, view.flushed)) return "not sent";
    }
    if (slot?.ours !== true) return "well";
    if (this.#options.slot.keepsTooMuch(slot)) {
      const kept = Math.round(slot.retained / 1_048_576);
      const fix = "Look for transactions that are open for long; without any, raise it: see docs/wal.md";
      return { giveUp: `The slot kept ${kept} MB of the server's log, more than maxRetainedBytes. ${fix}` };
    }
    // Where other processes of the relay poll, none reads it. Where this one has all lanes, it is for this one to read.
    const isUnused = !isWanted || this.isPausedForLong || this.#isLong(this.#pollsSince);
    return slot.activePid === undefined && isUnused ? "unused" : "well";
  }

  /** More and more, or as much as before: a server that reads old transactions once more begins far back. */
  #isFallingBehind(stream: WalStream, bytes: number): boolean {
    const before = this.#unsent;
    this.#unsent = bytes > MOST_BEHIND ? { stream, bytes } : undefined;
    return bytes > MOST_BEHIND && before?.stream === stream && bytes >= before.bytes;
  }

  /** What was there at the last look has not come: messages may be among it. */
  async #isKeptWaiting(stream: WalStream, flushed: Lsn): Promise<boolean> {
    const { received, isHeld } = stream.connection;
    // Held by the relay itself, or on its way through an old part of the log.
    if (isHeld || !stream.hasCaughtUp) this.#missing = undefined;
    else if (this.#missing?.stream !== stream || received >= this.#missing.end) {
      const at = this.#now;
      // What is on disk may end within a record, which no stream brings.
      this.#missing = received < flushed ? { stream, end: await endOfLog(this.#options.sql), at } : undefined;
    } else return this.#now - this.#missing.at >= KEPT_WAITING_MS;
    return false;
  }

  #isLong(since: number | undefined): boolean {
    return since !== undefined && this.#now - since > STUCK_MS;
  }

  get #now(): number {
    return this.#options.clock.monotonic();
  }
}

function isSetUp(view: SlotView, names: Names, slot: string): boolean {
  try {
    requireStreamable(view, names, slot);
    return true;
  } catch {
    return false;
  }
}
