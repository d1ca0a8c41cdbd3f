import type { Part } from "./lane-port.ts";

/** From this many deaths on, the owner is careful. */
const CAREFUL_FROM = 2;
/** After so many messages that went well it is as healthy as any other. */
export const TRUSTED_AFTER = 336;

/**
 * How many messages a careful owner takes at a time, after `tried` went well: single ones, so that the one that kills is
 * known, then ever more, so that many deaths of other causes do not make it slow. Undefined: as many as ever.
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
  #tried = 0;

  /** Other parts, or the same ones loaded anew. After another death it begins again. */
  load(parts: readonly P[]): void {
    this.#crashes = new Map(parts.map((part) => [part, part.crashes]));
    const worst = Math.max(0, ...parts.map(({ crashes }) => crashes));
    if (worst > this.#worst) this.#tried = 0;
    this.#worst = worst;
  }

  get limit(): number | undefined {
    return carefulLimit(this.#worst, this.#tried);
  }

  settled(messages: number): void {
    this.#tried += messages;
  }

  /** Deaths are counted for this part, and it has shown since that it is healthy. */
  isProven(part: P): boolean {
    return (this.#crashes.get(part) ?? 0) > 0 && this.limit === undefined;
  }

  /** Parts with deaths to their count. */
  get suspicious(): P[] {
    return [...this.#crashes].flatMap(([part, crashes]) => (crashes > 0 ? [part] : []));
  }

  /** The count of a part was cleared. */
  clear(part: P): void {
    this.#crashes.set(part, 0);
    this.#worst = Math.max(0, ...this.#crashes.values());
  }
}
