import type { Outcome } from "../../core/contracts.ts";
import { describeError } from "../../core/errors.ts";
import type { BlockedKey, BlockedKeys } from "./blocked-keys.ts";
import type { LogMessage } from "./log-message.ts";

interface Parked {
  position: string;
  lane: number;
  stream: string;
  key: string;
  solo: string;
}

interface Gone {
  position: string;
  attempts: number;
  error: string | null;
  published: boolean;
}

interface Dead {
  position: string;
  attempts: number;
  error: string;
  block: boolean;
  stream: string;
  key: string;
  solo: string;
}

/** What the next settle of a cursor will write, gathered from the outcomes reported since the last one. */
export class SettleBatch {
  /** The cursor moves to this position; undefined: it stays. */
  done: string | undefined;
  /** The window is finished. */
  finish = false;
  published = 0;
  /** Messages read from the log, for the batch row. */
  messages = 0;
  /** By position. */
  readonly park: Map<string, Parked> = new Map();
  readonly gone: Gone[] = [];
  readonly dead: Dead[] = [];
  /** Keys that were being drained. */
  readonly drained: Set<BlockedKey> = new Set();
  /** Keys that differ from their rows. */
  readonly changed: Set<BlockedKey> = new Set();
  readonly waiters: { resolve: () => void; reject: (error: unknown) => void }[] = [];

  get plain(): boolean {
    return this.park.size === 0 && this.gone.length === 0 && this.dead.length === 0 && this.drained.size === 0;
  }

  /** Outcomes of new messages. */
  recordNew(messages: readonly LogMessage[], outcomes: readonly Outcome[], keys: BlockedKeys, now: number): void {
    this.messages += messages.length;
    for (let i = 0; i < messages.length; i++) {
      const outcome = outcomes[i]!;
      if (outcome.status === "published") this.published++;
      else this.#recordOther(messages[i]!, outcome, keys, keys.ensure(messages[i]!), now, false);
    }
  }

  /** Outcomes of parked messages that were tried again; `entries` are their keys. */
  recordParked(
    messages: readonly LogMessage[],
    entries: readonly BlockedKey[],
    outcomes: readonly Outcome[],
    keys: BlockedKeys,
    now: number,
  ): void {
    for (let i = 0; i < messages.length; i++) {
      const outcome = outcomes[i]!;
      if (outcome.status === "published") {
        this.published++;
        this.#leave(messages[i]!, keys, entries[i]!, true);
        keys.routeBack(entries[i]!, now);
      } else {
        this.#recordOther(messages[i]!, outcome, keys, entries[i]!, now, true);
      }
    }
  }

  /** The key has to be written. */
  change(entry: BlockedKey): void {
    entry.dirty = true;
    this.changed.add(entry);
  }

  #recordOther(
    message: LogMessage,
    outcome: Exclude<Outcome, { status: "published" }>,
    keys: BlockedKeys,
    entry: BlockedKey,
    now: number,
    retried: boolean,
  ): void {
    const position = message.positionText;
    this.change(entry);
    if (outcome.status === "dead") {
      if (retried) this.#leave(message, keys, entry, false);
      const { stream, key, solo } = entry;
      this.dead.push({
        position,
        attempts: outcome.attempts,
        error: describeError(outcome.error),
        block: outcome.block,
        stream,
        key,
        solo,
      });
      entry.attempts = 0;
      entry.head = outcome.block ? position : undefined;
      entry.dueAt = now;
      entry.held = outcome.block;
      entry.lastError = undefined;
      entry.errors = [];
      return;
    }
    if (!retried) {
      this.park.set(position, { position, lane: entry.lane, stream: entry.stream, key: entry.key, solo: entry.solo });
      keys.park(entry, 1);
    }
    switch (outcome.status) {
      case "retry":
        keys.leaveRoute(entry);
        entry.head = position;
        entry.attempts = outcome.attempts;
        entry.dueAt = now + outcome.delayMs;
        entry.lastError = describeError(outcome.error);
        entry.errors.push({ at: new Date().toISOString(), error: entry.lastError });
        return;
      case "postponed":
        entry.head = position;
        entry.dueAt = now + outcome.delayMs;
        entry.lastError = describeError(outcome.error);
        if (outcome.route !== undefined) keys.routeOut(entry, outcome.route, entry.dueAt);
        return;
      case "running":
      case "waiting":
        entry.head ??= position;
    }
  }

  /** A parked message is through, or dead. */
  #leave(message: LogMessage, keys: BlockedKeys, entry: BlockedKey, published: boolean): void {
    const position = message.positionText;
    const first = entry.head === position;
    const attempts = (first ? entry.attempts : 0) + 1;
    // One statement cannot delete what it inserts.
    this.park.delete(position);
    this.gone.push({ position, attempts, error: first ? (entry.lastError ?? null) : null, published });
    keys.park(entry, -1);
    this.change(entry);
    entry.head = undefined;
    entry.attempts = 0;
    entry.lastError = undefined;
    entry.errors = [];
  }
}
