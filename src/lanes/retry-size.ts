import type { Outcome } from "../core/contracts.ts";

/** So many keys in one claim where they fail again at once. */
const FEW = 32;
/** An attempt that takes so long leaves the database alone meanwhile. */
const SLOW_MS = 40;

/**
 * How many failed keys are claimed together. Where they fail again at once, a claim is little more than a write: those are
 * small, so that the writes of new messages get between them. Where attempts go through or take long, many share one.
 */
export class RetrySize {
  readonly #most: number;
  #keys: number;

  constructor(most: number) {
    this.#most = most;
    this.#keys = most;
  }

  get keys(): number {
    return this.#keys;
  }

  /** A claim of failed keys has ended. */
  note(outcomes: readonly Outcome[], tookMs: number): void {
    const published = outcomes.filter(({ status }) => status === "published").length;
    const failsAtOnce = tookMs < SLOW_MS && published * 2 < outcomes.length;
    this.#keys = failsAtOnce ? Math.min(FEW, this.#most) : this.#most;
  }
}
