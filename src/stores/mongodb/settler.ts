import type { Clock, Outcome } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import type { BlockedKeys } from "./blocked-keys.ts";
import type { MongoClaim } from "./claims.ts";
import { writeLetters } from "./dead-letters.ts";
import type { Lease } from "./lease.ts";
import { leaseLost } from "../shared/relay-errors.ts";
import { isPassing, isTimeExpired } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { SettleBatch } from "./settle-batch.ts";
import { claimLate, settleStreamed } from "./settle-streamed.ts";

/** Settles that could not be written are tried again at this pace while the lease lasts. */
const RETRY_MS = 100;

export interface SettlerOptions {
  tables: Tables;
  relay: string;
  clock: Clock;
  keys: BlockedKeys;
  lease: Lease;
  /** Under which name lanes are held at this moment. */
  owner: () => string;
  /** Throws when the lanes are another's: then nothing is written, not even of lanes that nobody has taken yet. */
  beforeWrite: () => Promise<void>;
  onWritten: (batch: SettleBatch) => void;
  /** Renews the lease and counts what was written since. */
  onSettled: () => Promise<void>;
  /** What is in memory no longer holds. */
  onFailure: () => void;
}

/** Writes outcomes: one write under way per session, and what is reported meanwhile shares the next one. */
export class Settler {
  readonly #options: SettlerOptions;
  #pending: SettleBatch | undefined;
  #flushing: Promise<void> | undefined;

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  get busy(): boolean {
    return this.#pending !== undefined || this.#flushing !== undefined;
  }

  /** Takes effect in memory at once; resolves when it is written. */
  add(claim: MongoClaim, outcomes: readonly Outcome[]): Promise<void> {
    const { keys, clock, lease } = this.#options;
    this.#pending ??= new SettleBatch();
    this.#pending.record(claim, outcomes, keys, clock.monotonic(), lease.serverNow());
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#pending.waiters.push({ resolve, reject });
    this.#flushing ??= this.#flush();
    return promise;
  }

  /** Resolves when nothing is being written. */
  async idle(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  /** Forgets what is not written yet. */
  drop(reason: unknown): void {
    const batch = this.#pending;
    this.#pending = undefined;
    for (const waiter of batch?.waiters ?? []) waiter.reject(reason);
  }

  async #flush(): Promise<void> {
    // Outcomes reported in this turn share the write.
    await Promise.resolve();
    for (;;) {
      const batch = this.#pending;
      if (batch === undefined) {
        // At once: what is reported before anybody else has had a turn must find nobody at it.
        this.#flushing = undefined;
        return;
      }
      this.#pending = undefined;
      try {
        await this.#writeSturdily(batch);
        for (const waiter of batch.waiters) waiter.resolve();
      } catch (error) {
        this.#options.onFailure();
        for (const waiter of batch.waiters) waiter.reject(error);
      }
    }
  }

  /** Writes though the connection may break: a repeat finds what an earlier try has written, by its token. */
  async #writeSturdily(batch: SettleBatch): Promise<void> {
    const { clock, lease, keys } = this.#options;
    for (;;) {
      try {
        await this.#options.beforeWrite();
        await this.#write(batch);
        break;
      } catch (error) {
        if (errorCode(error) === "lease_lost") throw error;
        // Only the lease keeps what came by a change stream in time, so this may yet take effect.
        if (batch.tokens.has(batch.token) && !isTimeExpired(error)) lease.noteUnknown();
        if (!isPassing(error) || clock.monotonic() > lease.validUntil) throw error;
        await clock.sleep(RETRY_MS);
      }
    }
    for (const key of batch.drained) key.draining = false;
    for (const key of batch.touched) {
      key.writes--;
      keys.freeIfEmpty(key);
      keys.schedule(key);
    }
  }

  async #write(batch: SettleBatch): Promise<void> {
    const { tables, relay, lease, owner, onWritten, onSettled } = this.#options;
    if (batch.late.length > 0 && !(await claimLate(tables.outbox, batch, lease.hold(relay, owner()))))
      throw leaseLost(relay);
    let matched =
      batch.streamed.length === 0 ? 0 : await settleStreamed(tables.outbox, batch, lease.hold(relay, owner()));
    const operations = batch.operations();
    if (operations.length > 0) {
      matched += (await tables.outbox.bulkWrite(operations, { ordered: false })).matchedCount;
    }
    if (matched < batch.ids.length && !(await this.#wasWritten(batch))) throw leaseLost(relay);
    if (batch.dead.length > 0) {
      const dying = await tables.outbox.find({ _id: { $in: batch.dead }, waits: "dying" });
      await writeLetters(tables, relay, dying);
    }
    if (!batch.written) onWritten(batch);
    batch.written = true;
    // Counted with what comes right behind it, if something does.
    if (this.#pending === undefined) await onSettled();
  }

  async #wasWritten({ ids, tokens }: SettleBatch): Promise<boolean> {
    const written = { _id: { $in: ids }, lease_token: { $in: [...tokens] }, status: { $ne: "processing" } };
    return (await this.#options.tables.outbox.count(written)) === ids.length;
  }
}
