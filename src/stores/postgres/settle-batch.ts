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
  readonly park: Parked[] = [];
  readonly gone: Gone[] = [];
  readonly dead: Dead[] = [];
  /** Keys that were being drained. */
  readonly drained: BlockedKey[] = [];
  readonly waiters: { resolve: () => void; reject: (error: unknown) => void }[] = [];

  get plain(): boolean {
    return this.park.length === 0 && this.gone.length === 0 && this.dead.length === 0 && this.drained.length === 0;
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
      } else {
        this.#recordOther(messages[i]!, outcome, keys, entries[i]!, now, true);
      }
    }
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
    entry.dirty = true;
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
      entry.dueAt = outcome.block ? Number.POSITIVE_INFINITY : now;
      entry.lastError = undefined;
      entry.errors = [];
      return;
    }
    if (!retried) {
      this.park.push({ position, lane: entry.lane, stream: entry.stream, key: entry.key, solo: entry.solo });
      keys.park(entry, 1);
    }
    if (outcome.status === "retry") {
      entry.head = position;
      entry.attempts = outcome.attempts;
      entry.dueAt = now + outcome.delayMs;
      entry.lastError = describeError(outcome.error);
      entry.errors.push({ at: new Date().toISOString(), error: entry.lastError });
    } else {
      entry.head ??= position;
    }
  }

  /** A parked message is through, or dead. */
  #leave(message: LogMessage, keys: BlockedKeys, entry: BlockedKey, published: boolean): void {
    const position = message.positionText;
    const first = entry.head === position;
    const attempts = (first ? entry.attempts : 0) + 1;
    this.gone.push({ position, attempts, error: first ? (entry.lastError ?? null) : null, published });
    keys.park(entry, -1);
    entry.dirty = true;
    entry.head = undefined;
    entry.attempts = 0;
    entry.lastError = undefined;
    entry.errors = [];
  }
}
