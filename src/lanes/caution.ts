import type { Part } from "./lane-port.ts";

/** From this many deaths on, the owner is careful. */
const CAREFUL_FROM = 2;
/** After this many messages that went well, an owner counts as healthy again. */
export const TRUSTED_AFTER = 336;
/** The same after a single death. */
const SURE_AFTER = 16;

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
  #tried = 0;
  /** How many claims had been handed out when enough had gone well. */
  #trustedAt: number | undefined;

  /** Other parts, or the same ones loaded anew. After another death it begins again. */
  load(parts: readonly P[]): void {
    this.#crashes = new Map(parts.map((part) => [part, part.crashes]));
    this.#worst = Math.max(0, ...parts.map(({ crashes }) => crashes));
    const sum = parts.reduce((total, { crashes, lanes }) => total + crashes * lanes.length, 0);
    if (sum > this.#sum) {
      this.#tried = 0;
      this.#trustedAt = undefined;
    }
    this.#sum = sum;
  }

  get limit(): number | undefined {
    return carefulLimit(this.#worst, this.#tried);
  }

  settled(messages: number, handedOut: number): void {
    this.#tried += messages;
    const enough = this.#worst < CAREFUL_FROM ? SURE_AFTER : TRUSTED_AFTER;
    if (this.#tried >= enough) this.#trustedAt ??= handedOut;
  }

  /**
   * Deaths are counted for this part, and messages have gone well since. Those in hand at that time must have ended:
   * one of them may take long to kill.
   */
  isProven(part: P, oldestInHand: number): boolean {
    return (this.#crashes.get(part) ?? 0) > 0 && this.#trustedAt !== undefined && oldestInHand > this.#trustedAt;
  }

  /** Parts with a count of deaths above 0. */
  get suspicious(): P[] {
    return [...this.#crashes].flatMap(([part, crashes]) => (crashes > 0 ? [part] : []));
  }

  /** The count of a part was cleared. */
  clear(part: P): void {
    this.#crashes.set(part, 0);
    this.#worst = Math.max(0, ...this.#crashes.values());
  }
}
