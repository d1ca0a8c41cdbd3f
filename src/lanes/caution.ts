import type { ClaimKind } from "../core/contracts.ts";
import type { Part } from "./lane-port.ts";

/** From this many deaths on, the owner is careful. */
const CAREFUL_FROM = 2;
/** After this many messages that went well, an owner counts as healthy again. */
export const TRUSTED_AFTER = 336;
/** The same after a single death. */
const SURE_AFTER = 16;
/** After a single death, keys that were due at that time are tried so many together: then fewer messages are in question. */
const FEW_KEYS = 16;

/** A key that waits, as far as caution needs it. */
export interface SuspectKey {
  readonly lane: number;
  readonly parked: number;
  readonly held: boolean;
  readonly dueAt: number;
}

/**
 * How many messages a careful owner takes at a time, after `tried` went well. First single ones, so that the message
 * that kills is known; then more each time, so that deaths of other causes do not keep it slow. Undefined: as many as
 * ever.
 */
export function carefulLimit(crashes: number, tried: number): number | undefined {
  if (crashes < CAREFUL_FROM || tried >= TRUSTED_AFTER) return undefined;
  if (tried < 16) return 1;
  return tried < 80 ? 64 : 256;
}

/** How careful an owner is after others have died in its lanes. */
export class Caution<P extends Part> {
  #crashes = new Map<P, number>();
  #worst = 0;
  /** Deaths by lane. */
  #sum = 0;
  /** Messages that were published or failed since the last death. One kind of claims proves nothing of the other. */
  #tried: Record<ClaimKind, number> = { new: 0, retry: 0 };
  /**
   * Failed keys that were due when the lanes of a dead owner were loaded. The owner may have died of one of them, without a
   * trace of which.
   */
  #dueThen: SuspectKey[] = [];
  #loadedAt = 0;
  /** How many claims had been handed out when enough had gone well. */
  #trustedAt: number | undefined;

  /** Other parts, or the same ones loaded anew. After another death it begins again. */
  load(parts: readonly P[], keys: readonly SuspectKey[], now: number): void {
    const suspicious = new Set(parts.flatMap(({ crashes, lanes }) => (crashes > 0 ? lanes : [])));
    this.#loadedAt = now;
    this.#dueThen = keys.filter((key) => suspicious.has(key.lane) && !this.#isOver(key));
    this.#crashes = new Map(parts.map((part) => [part, part.crashes]));
    this.#worst = Math.max(0, ...parts.map(({ crashes }) => crashes));
    const sum = parts.reduce((total, { crashes, lanes }) => total + crashes * lanes.length, 0);
    if (sum > this.#sum) {
      this.#tried = { new: 0, retry: 0 };
      this.#trustedAt = undefined;
    }
    this.#sum = sum;
  }

  /** How many messages of a kind are claimed together; undefined: as many as ever. */
  limit(kind: ClaimKind): number | undefined {
    return carefulLimit(this.#worst, this.#tried[kind]);
  }

  /** Only one claim is in hand at a time, so that it is known which message an owner died with. */
  get isCareful(): boolean {
    return this.limit("new") !== undefined || (this.limit("retry") !== undefined && this.#hasDueThen);
  }

  /** How many failed keys share a claim at most; undefined: as many as ever. */
  get mostKeys(): number | undefined {
    return this.#worst > 0 && this.#hasDueThen ? FEW_KEYS : undefined;
  }

  /** So many messages of a kind were published or failed, and the owner lives. */
  settled(kind: ClaimKind, messages: number, handedOut: number): void {
    this.#tried[kind] += messages;
    const enough = this.#worst < CAREFUL_FROM ? SURE_AFTER : TRUSTED_AFTER;
    if (this.#tried.new + this.#tried.retry >= enough) this.#trustedAt ??= handedOut;
  }

  /** Of the failed keys that were due at the death of an owner, some have not been tried since. */
  get #hasDueThen(): boolean {
    while (this.#dueThen.length > 0 && this.#isOver(this.#dueThen.at(-1)!)) this.#dueThen.pop();
    return this.#dueThen.length > 0;
  }

  /** The key is free, or was tried since: then its time has been moved. */
  #isOver({ parked, held, dueAt }: SuspectKey): boolean {
    return parked === 0 || held || dueAt > this.#loadedAt;
  }

  /**
   * Deaths are counted for this part, and messages have gone well since. Those in hand at that time must have ended:
   * one of them may take long to kill.
   */
  isProven(part: P, oldestInHand: number): boolean {
    if ((this.#crashes.get(part) ?? 0) === 0 || this.#trustedAt === undefined || this.#hasDueThen) return false;
    return oldestInHand > this.#trustedAt;
  }

  /** Parts with a count of deaths above 0. */
  get suspicious(): P[] {
    return [...this.#crashes].flatMap(([part, crashes]) => (crashes > 0 ? [part] : []));
  }

  /** The count of a part was cleared. */
  clear(part: P): void {
    // What is loaded later is compared with what is left.
    this.#sum -= (this.#crashes.get(part) ?? 0) * part.lanes.length;
    this.#crashes.set(part, 0);
    this.#worst = Math.max(0, ...this.#crashes.values());
  }
}
