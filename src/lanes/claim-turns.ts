import type { ClaimKind } from "../core/contracts.ts";

/** A kind of claims that was refused gets the next turn, if it asks for it within this time. */
const TURN_MS = 100;

/** The turns of a careful owner, who has one claim in hand: neither kind may keep the other from being tried. */
export class ClaimTurns {
  /** The last claim, and when it was made or ended. */
  #last: { readonly kind: ClaimKind; readonly at: number } | undefined;
  /** Kinds that have asked in vain since their last turn. */
  readonly #refused = new Set<ClaimKind>();

  /** Whether a kind may claim now; `wants` says whether the other has anything to claim. */
  ask(kind: ClaimKind, now: number, isFree: boolean, wants: (other: ClaimKind) => boolean): boolean {
    const other = otherOf(kind);
    const hadLast = this.#last?.kind === kind && now - this.#last.at < TURN_MS;
    if (!isFree || (hadLast && this.#refused.has(other) && wants(other))) {
      this.#refused.add(kind);
      return false;
    }
    this.#refused.delete(kind);
    return true;
  }

  begun(kind: ClaimKind, now: number): void {
    this.#last = { kind, at: now };
  }

  /** A claim of this kind is settled. True when the other kind has been waiting for that. */
  ended(kind: ClaimKind, now: number): boolean {
    this.#last = { kind, at: now };
    return this.#refused.has(otherOf(kind));
  }
}

function otherOf(kind: ClaimKind): ClaimKind {
  return kind === "new" ? "retry" : "new";
}
