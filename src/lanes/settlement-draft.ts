import { randomUUID } from "node:crypto";
import type { ClaimKind, Outcome } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import type { BlockedKey, BlockedKeys } from "./blocked-keys.ts";
import type {
  DeadMessage,
  ParkedMessage,
  Settlement,
  SettledPage,
  Stored,
  StoredKey,
  UnparkedMessage,
} from "./lane-port.ts";

type Waiting = ParkedMessage<Stored>["outcome"];

/** The claim that is reported on, as far as the draft needs it. */
export interface SettledClaim<S, M> {
  readonly messages: readonly S[];
  /** Failed attempts before this one; undefined: none. */
  readonly attempts: readonly number[] | undefined;
  /** Of a page of new messages; undefined for parked ones. */
  readonly page: { readonly mark: M } | undefined;
  /** The blocked keys that it holds, and that of each message. */
  readonly keys: readonly BlockedKey[];
  readonly entries: readonly BlockedKey[];
  /** Messages that went over to claims of their own. */
  readonly detached: ReadonlySet<S>;
}

/** What the next write of a part will be, gathered from the outcomes reported since the last one. */
export class SettlementDraft<S extends Stored, M> {
  readonly token: string = randomUUID();
  readonly waiters: { resolve: () => void; reject: (error: unknown) => void }[] = [];
  /** How many messages of each kind were published or failed: what only waits was not given to the publisher. */
  readonly tried: Record<ClaimKind, number> = { new: 0, retry: 0 };
  /** Nothing is left that could kill its owner. */
  isClear = false;
  readonly #keys: BlockedKeys;
  readonly #pages: SettledPage<S, M>[] = [];
  readonly #park = new Map<S, ParkedMessage<S>>();
  readonly #retried = new Map<S, ParkedMessage<S>>();
  readonly #unpark: UnparkedMessage<S>[] = [];
  readonly #dead: DeadMessage<S>[] = [];
  #published = 0;
  /** Keys that differ from what is stored. */
  readonly #changed = new Set<BlockedKey>();
  /** Keys whose claims are over. */
  readonly #drained = new Set<BlockedKey>();

  constructor(keys: BlockedKeys) {
    this.#keys = keys;
  }

  /** Takes effect on the keys at once. Fewer outcomes than messages settle the leading ones. */
  record(claim: SettledClaim<S, M>, outcomes: readonly Outcome[], now: number): void {
    const complete = outcomes.length === claim.messages.length;
    const messages = complete ? claim.messages : claim.messages.slice(0, outcomes.length);
    const ended = outcomes.filter(({ status }) => status === "published" || status === "retry" || status === "dead");
    this.tried[claim.page === undefined ? "retry" : "new"] += ended.length;
    if (claim.page === undefined) this.#recordParked(claim, messages, outcomes, now);
    else this.#recordNew(claim.page.mark, messages, outcomes, complete, now);
    const goingOn = new Set(claim.entries.filter((_, i) => claim.detached.has(claim.messages[i]!)));
    for (const key of claim.keys) {
      if (goingOn.has(key)) continue;
      this.#drained.add(key);
      this.change(key);
    }
  }

  /** The key has to be written. */
  change(key: BlockedKey): void {
    if (this.#changed.has(key)) return;
    this.#changed.add(key);
    key.unwritten++;
  }

  #recordNew(mark: M, messages: readonly S[], outcomes: readonly Outcome[], complete: boolean, now: number): void {
    let published: S[] | undefined;
    for (let i = 0; i < outcomes.length; i++) {
      const outcome = outcomes[i]!;
      if (outcome.status === "published") {
        published?.push(messages[i]!);
        continue;
      }
      published ??= messages.slice(0, i);
      const message = messages[i]!;
      const key = this.#keys.ensure(message);
      this.change(key);
      if (outcome.status === "dead") {
        this.#die(message, key, outcome, now);
        continue;
      }
      this.#park.set(message, { message, key, outcome });
      this.#keys.park(key, 1);
      this.#wait(message, key, outcome, now);
    }
    const went = published ?? messages;
    this.#published += went.length;
    this.#pages.push({ mark, messages, published: went, complete });
  }

  #recordParked(
    { entries, attempts }: SettledClaim<S, M>,
    messages: readonly S[],
    outcomes: readonly Outcome[],
    now: number,
  ): void {
    for (const [i, outcome] of outcomes.entries()) {
      const message = messages[i]!;
      const key = entries[i]!;
      this.change(key);
      if (outcome.status === "published") {
        this.#published++;
        this.#unparked(message, key, true, (attempts?.[i] ?? 0) + 1);
        this.#keys.routeBack(key, now);
      } else if (outcome.status === "dead") {
        this.#unparked(message, key, false, outcome.attempts);
        this.#die(message, key, outcome, now);
      } else {
        // What was not yet written as parked is written with its latest outcome.
        const waits = this.#park.has(message) ? this.#park : this.#retried;
        waits.set(message, { message, key, outcome });
        this.#wait(message, key, outcome, now);
      }
    }
  }

  /** A parked message is through, or dead. */
  #unparked(message: S, key: BlockedKey, published: boolean, attempts: number): void {
    const first = String(key.head) === String(message.ref);
    this.#park.delete(message);
    this.#retried.delete(message);
    this.#unpark.push({ message, published, attempts, lastError: first ? key.lastError : undefined });
    this.#keys.park(key, -1);
    Object.assign(key, { head: undefined, attempts: 0, lastError: undefined, errors: [] });
  }

  #die(message: S, key: BlockedKey, outcome: Extract<Outcome, { status: "dead" }>, now: number): void {
    const error = describeError(outcome.error);
    this.#dead.push({ message, key, attempts: outcome.attempts, error, block: outcome.block });
    Object.assign(key, { attempts: 0, dueAt: now, lastError: undefined, errors: [] });
    // Only a command takes the hold off again.
    key.held ||= outcome.block;
    key.head = outcome.block ? message.ref : undefined;
  }

  #wait(message: S, key: BlockedKey, outcome: Waiting, now: number): void {
    switch (outcome.status) {
      case "retry":
        this.#keys.leaveRoute(key);
        key.head = message.ref;
        key.attempts = outcome.attempts;
        key.dueAt = now + outcome.delayMs;
        key.lastError = describeError(outcome.error);
        key.errors.push(key.lastError);
        return;
      case "postponed":
        key.head = message.ref;
        key.dueAt = now + outcome.delayMs;
        key.lastError = describeError(outcome.error);
        if (outcome.route !== undefined) this.#keys.routeOut(key, outcome.route, key.dueAt);
        return;
      case "running":
      case "waiting":
        key.head ??= message.ref;
    }
  }

  /** What is to be written, with the keys as they are now. */
  settlement(
    now: number,
    { clearCrashes, mayOpenNext, isFollowed }: Pick<Settlement<S, M>, "clearCrashes" | "mayOpenNext" | "isFollowed">,
  ): Settlement<S, M> {
    const block: (StoredKey & { errors: readonly string[] })[] = [];
    const unblock: StoredKey[] = [];
    for (const key of this.#changed) {
      const { lane, stream, key: name, single, head, attempts, lastError, parked, dueAt, held, errors } = key;
      const dueInMs = Math.max(0, dueAt - now);
      const stored = { lane, stream, key: name, single, head, attempts, lastError, parked, dueInMs, held };
      if (isWaiting(key)) block.push({ ...stored, errors });
      else if (key.stored) unblock.push(stored);
      key.stored = isWaiting(key);
      key.errors = [];
    }
    const plain = this.#park.size + this.#unpark.length + this.#dead.length + this.#drained.size === 0;
    return {
      token: this.token,
      pages: this.#pages,
      published: this.#published,
      park: [...this.#park.values()],
      retried: [...this.#retried.values()],
      unpark: this.#unpark,
      dead: this.#dead,
      block,
      unblock,
      clearCrashes,
      mayOpenNext: mayOpenNext && plain,
      isFollowed,
    };
  }

  /** It is written: keys that wait for nothing any more go, and the others may be tried again when their time comes. */
  written(): void {
    for (const key of this.#drained) key.draining = false;
    for (const key of this.#changed) {
      key.unwritten--;
      if (!isWaiting(key) && key.unwritten === 0 && !key.draining) this.#keys.delete(key);
      else this.#keys.schedule(key);
    }
  }
}

function isWaiting({ parked, held }: BlockedKey): boolean {
  return parked > 0 || held;
}
