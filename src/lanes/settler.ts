import type { Clock, Outcome } from "../core/contracts.ts";
import type { BlockedKey, BlockedKeys } from "./blocked-keys.ts";
import type { Caution } from "./caution.ts";
import type { LanePort, Part, Stored } from "./lane-port.ts";
import { SettlementDraft, type SettledClaim } from "./settlement-draft.ts";

/** Settlements that could not be written are tried again at this pace while the lease lasts. */
const RETRY_MS = 100;

export interface SettlerOptions<P extends Part, S extends Stored, M> {
  port: LanePort<P, S, M>;
  clock: Clock;
  keys: BlockedKeys;
  caution: Caution<P>;
  validUntil: () => number;
  mayOpenNext: () => boolean;
  /** The number of the oldest claim in hand, as in ClaimsInHand. */
  oldestInHand: () => number;
  handedOut: () => number;
  /** Makes the error for a write that the fence refused. */
  leaseLost: () => unknown;
  /** What is in memory no longer holds. */
  onFailure: (error: unknown) => void;
  onWritten: () => void;
}

/** Writes outcomes: one write under way at a time, and what is reported meanwhile shares the next one of its part. */
export class Settler<P extends Part, S extends Stored, M> {
  readonly #options: SettlerOptions<P, S, M>;
  readonly #drafts = new Map<P, SettlementDraft<S, M>>();
  #writing: Promise<void> | undefined;

  constructor(options: SettlerOptions<P, S, M>) {
    this.#options = options;
  }

  get busy(): boolean {
    return this.#writing !== undefined;
  }

  /** Takes effect in memory at once; resolves when it is written. */
  settle(part: P, claim: SettledClaim<S, M>, outcomes: readonly Outcome[]): Promise<void> {
    const now = this.#options.clock.monotonic();
    return this.#add(part, (draft) => draft.record(claim, outcomes, now));
  }

  /** Keys with nothing parked are free once that is written. */
  free(part: P, keys: readonly BlockedKey[]): void {
    if (keys.length === 0) return;
    const written = this.#add(part, (draft) => {
      for (const key of keys) draft.change(key);
    });
    // A failed write has made everything void.
    written.catch(() => undefined);
  }

  /** Writes only that no message here kills its owner. */
  clearCrashes(part: P): Promise<void> {
    return this.#add(part, (draft) => (draft.isClear = true));
  }

  /** Resolves when nothing is being written. */
  async idle(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  /** Forgets what is not written yet. */
  drop(reason: unknown): void {
    const drafts = [...this.#drafts.values()];
    this.#drafts.clear();
    for (const draft of drafts) for (const waiter of draft.waiters) waiter.reject(reason);
  }

  #add(part: P, record: (draft: SettlementDraft<S, M>) => unknown): Promise<void> {
    let draft = this.#drafts.get(part);
    if (draft === undefined) this.#drafts.set(part, (draft = new SettlementDraft(this.#options.keys)));
    record(draft);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    draft.waiters.push({ resolve, reject });
    this.#writing ??= this.#writeAll();
    return promise;
  }

  async #writeAll(): Promise<void> {
    // Outcomes reported in this turn share the write.
    await Promise.resolve();
    for (;;) {
      const next = this.#drafts.entries().next();
      if (next.done === true) {
        // At once: an outcome that is reported right after this must start a new write.
        this.#writing = undefined;
        return;
      }
      const [part, draft] = next.value;
      this.#drafts.delete(part);
      try {
        await this.#write(part, draft);
        this.#options.onWritten();
        for (const waiter of draft.waiters) waiter.resolve();
      } catch (error) {
        this.#options.onFailure(error);
        for (const waiter of draft.waiters) waiter.reject(error);
      }
    }
  }

  /** Writes though the connection may break: the token tells whether an earlier try had arrived. */
  async #write(part: P, draft: SettlementDraft<S, M>): Promise<void> {
    const { port, clock, caution, validUntil, mayOpenNext, leaseLost } = this.#options;
    const handedOut = this.#options.handedOut();
    caution.settled("new", draft.tried.new, handedOut);
    caution.settled("retry", draft.tried.retry, handedOut);
    const clearCrashes = draft.isClear || caution.isProven(part, this.#options.oldestInHand());
    const settlement = draft.settlement(clock.monotonic(), {
      clearCrashes,
      mayOpenNext: mayOpenNext(),
      isFollowed: () => this.#drafts.size > 0,
    });
    let written: boolean | undefined;
    while (written === undefined) {
      try {
        written = await port.write(part, settlement);
      } catch (error) {
        if (!port.isPassing(error) || clock.monotonic() > validUntil()) throw error;
        await clock.sleep(RETRY_MS);
      }
    }
    if (!written) throw leaseLost();
    if (clearCrashes) caution.clear(part);
    draft.written();
  }
}
