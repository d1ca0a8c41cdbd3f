import type { Clock, Outcome } from "../../core/contracts.ts";
import { carefulLimit, TRUSTED_AFTER } from "../shared/careful-limit.ts";
import { leaseLost } from "../shared/relay-errors.ts";
import type { BlockedKey, BlockedKeys } from "./blocked-keys.ts";
import type { LogMessage } from "./log-message.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import { isPassing } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";
import { SettleBatch } from "./settle-batch.ts";
import { settleStatement } from "./settle-sql.ts";

/** Settles that could not be written are tried again at this pace while the lease lasts. */
const RETRY_MS = 100;

export interface SettledClaim {
  readonly messages: readonly LogMessage[];
  readonly cursor: Cursor;
  /** The position the cursor reaches with it; undefined for parked messages. */
  readonly upto: string | undefined;
  readonly last: boolean;
  readonly keys: readonly BlockedKey[];
  readonly entries: readonly BlockedKey[];
  /** Keys of messages whose attempts go on under claims of their own. */
  readonly detached: ReadonlySet<BlockedKey>;
}

export interface SettlerOptions {
  sql: SqlRunner;
  names: Names;
  relay: string;
  lease: string;
  clock: Clock;
  keys: BlockedKeys;
  validUntil: () => number;
  /** What is in memory no longer holds. */
  onFailure: () => void;
  /** Whether the next window of a cursor may be opened while the last one is finished. */
  mayReopen: (cursor: Cursor) => boolean;
  onReopened: (opened: boolean) => void;
}

/** Writes outcomes: one statement under way per session, and what is reported meanwhile shares the next one. */
export class Settler {
  readonly #options: SettlerOptions;
  readonly #pending = new Map<Cursor, SettleBatch>();
  #flushing: Promise<void> | undefined;

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  /** Takes effect in memory at once; resolves when it is written. */
  add(claim: SettledClaim, outcomes: readonly Outcome[]): Promise<void> {
    const { keys, clock } = this.#options;
    let batch = this.#pending.get(claim.cursor);
    if (batch === undefined) {
      batch = new SettleBatch();
      this.#pending.set(claim.cursor, batch);
    }
    const now = clock.monotonic();
    const complete = outcomes.length === claim.messages.length;
    const messages = complete ? claim.messages : claim.messages.slice(0, outcomes.length);
    if (claim.upto === undefined) {
      batch.recordParked(messages, claim.entries, outcomes, keys, now);
    } else {
      batch.recordNew(messages, outcomes, keys, now);
      // Without outcomes the cursor stays where an earlier claim of this batch may have put it.
      if (complete) batch.done = claim.upto;
      else if (messages.length > 0) batch.done = messages.at(-1)!.positionText;
      batch.finish = complete && claim.last;
    }
    for (const key of claim.keys) {
      if (claim.detached.has(key)) continue;
      batch.drained.add(key);
      if (key.dirty) batch.changed.add(key);
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    batch.waiters.push({ resolve, reject });
    this.#flushing ??= this.#flush();
    return promise;
  }

  /** Resolves when nothing is being written. */
  async idle(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  /** Runs what changes the fence by itself: nothing is written meanwhile. */
  async alone<T>(run: () => Promise<T>): Promise<T> {
    while (this.#flushing !== undefined) await this.#flushing;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#flushing = promise;
    try {
      return await run();
    } finally {
      this.#flushing = this.#pending.size > 0 ? this.#flush() : undefined;
      resolve();
    }
  }

  /** Forgets what is not written yet. */
  drop(reason: unknown): void {
    const batches = [...this.#pending.values()];
    this.#pending.clear();
    for (const batch of batches) for (const waiter of batch.waiters) waiter.reject(reason);
  }

  async #flush(): Promise<void> {
    // Outcomes reported in this turn share the write.
    await Promise.resolve();
    for (;;) {
      const next = this.#pending.entries().next();
      if (next.done === true) {
        // At once: what is reported before anybody else has had a turn must find nobody at it.
        this.#flushing = undefined;
        return;
      }
      const [cursor, batch] = next.value;
      this.#pending.delete(cursor);
      try {
        await this.#write(cursor, batch);
        for (const waiter of batch.waiters) waiter.resolve();
      } catch (error) {
        this.#options.onFailure();
        for (const waiter of batch.waiters) waiter.reject(error);
      }
    }
  }

  async #write(cursor: Cursor, batch: SettleBatch): Promise<void> {
    const { keys, names, relay, lease, clock } = this.#options;
    const now = clock.monotonic();
    const changed = [...batch.changed];
    const stays = (key: BlockedKey) => key.parked > 0 || key.held;
    const block = changed.filter(stays);
    const free = changed.filter((key) => !stays(key));
    const unblock = free.filter((key) => key.stored);
    const careful = carefulLimit(cursor.crashes, cursor.tried) !== undefined;
    cursor.tried += batch.published + batch.dead.length + batch.park.size;
    const clearCrashes = cursor.crashes > 0 && (!careful || cursor.tried >= TRUSTED_AFTER || batch.finish);
    const reopen = batch.finish && batch.plain && cursor.crashes === 0 && this.#options.mayReopen(cursor);
    const input = { relay, cursor, batch, lease, clearCrashes, block, unblock, now, reopen };
    const statement = settleStatement(names, input);
    for (const key of changed) {
      key.dirty = false;
      key.errors = [];
      key.stored = stays(key);
    }
    const [, cur, fin, lo] = await this.#writeFenced(statement.text, statement.params);
    cursor.seq++;
    cursor.writes++;
    cursor.suspect = undefined;
    if (clearCrashes) cursor.crashes = 0;
    if (batch.finish) {
      Object.assign(cursor, { prev: cursor.cur, cur: undefined, fin: "{}", done: "0", fetched: "0", exhausted: false });
      if (cur != null) Object.assign(cursor, { cur, fin: fin ?? "{}", lo: BigInt(lo!) });
      if (reopen) this.#options.onReopened(cur != null);
    } else if (batch.done !== undefined) {
      cursor.done = batch.done;
    }
    for (const key of batch.drained) key.draining = false;
    for (const key of free) if (key.parked === 0 && !key.dirty) keys.delete(key);
    for (const key of [...block, ...batch.drained]) keys.schedule(key);
  }

  /** Writes once, though the connection may break: the fence tells whether an earlier try had arrived. */
  async #writeFenced(text: string, params: readonly (string | null)[]): Promise<Row> {
    const { sql, clock, relay, validUntil } = this.#options;
    let rows: Row[] | undefined;
    while (rows === undefined) {
      try {
        rows = await sql.query(text, params);
      } catch (error) {
        if (!isPassing(error) || clock.monotonic() > validUntil()) throw error;
        await clock.sleep(RETRY_MS);
      }
    }
    const [row] = rows;
    if (row === undefined) throw leaseLost(relay);
    return row;
  }
}
