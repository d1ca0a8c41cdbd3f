import type { Claim } from "../core/contracts.ts";
import type { BlockedKey } from "./blocked-keys.ts";
import type { Stored } from "./lane-port.ts";
import type { SettledClaim } from "./settlement-draft.ts";

/** Messages held under a lease, and what the engine has to know to settle them. */
export interface LaneClaim<P, S extends Stored, M> extends Claim, SettledClaim<S, M> {
  readonly messages: readonly S[];
  readonly attempts: readonly number[] | undefined;
  part: P;
  /** Of the load that it belongs to: after the next one it is void. */
  generation: number;
  keys: readonly BlockedKey[];
  entries: readonly BlockedKey[];
  readonly detached: Set<S>;
  /** An attempt that goes on beside the claims: taken out of one, or carried over from an earlier load. */
  beside: boolean;
  readonly claimedAt: number;
  /** In the order in which claims are handed out; of one that was detached, that of the claim it was part of. */
  n: number;
  /** Its outcomes were reported, or it was given up. */
  ended: boolean;
}

/** Claims that are handed out and not settled: new ones in their order, those of failed keys each by itself. */
export class ClaimsInHand<P, S extends Stored, M> {
  #new: LaneClaim<P, S, M>[] = [];
  #retry = new Set<LaneClaim<P, S, M>>();
  /** How many were handed out. */
  handedOut = 0;

  /** The number of the oldest that is in hand; above all numbers when there is none. */
  get oldest(): number {
    return Math.min(Number.POSITIVE_INFINITY, ...[...this.#new, ...this.#retry].map(({ n }) => n));
  }

  get empty(): boolean {
    return this.#new.length === 0 && this.#retry.size === 0;
  }

  /** But for attempts beside the claims. One that was made alone counts: it would be blamed for what others do. */
  get emptyButForAttempts(): boolean {
    return this.#new.length === 0 && this.retry.every(({ beside, alone }) => beside && !alone);
  }

  get hasNew(): boolean {
    return this.#new.length > 0;
  }

  get hasRetry(): boolean {
    return this.#retry.size > 0;
  }

  get retry(): LaneClaim<P, S, M>[] {
    return [...this.#retry];
  }

  get messages(): S[] {
    return [...this.#new, ...this.#retry].flatMap(({ messages }) => messages);
  }

  add(claim: LaneClaim<P, S, M>): void {
    if (claim.kind === "new") this.#new.push(claim);
    else this.#retry.add(claim);
  }

  /** New claims end in the order in which they were handed out: another one would step over those before it. */
  isNext(claim: LaneClaim<P, S, M>): boolean {
    return claim.kind === "retry" || this.#new[0] === claim;
  }

  end(claim: LaneClaim<P, S, M>): void {
    if (claim.kind === "new") this.#new.shift();
    else this.#retry.delete(claim);
  }

  /** Claims without messages that are next: they are settled as soon as what is before them is. */
  takeEmpty(): LaneClaim<P, S, M>[] {
    let count = 0;
    while (this.#new[count]?.messages.length === 0) count++;
    return this.#new.splice(0, count);
  }

  clear(): void {
    this.#new = [];
    this.#retry = new Set();
  }
}
