import { outageMs } from "../core/backoff.ts";
import type { BackoffOptions } from "../core/backoff.ts";
import type { Clock } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import type { RelayEvent } from "../core/events.ts";

interface Settings {
  readonly name: string;
  readonly clock: Clock;
  readonly outageBackoff: BackoffOptions;
  readonly emit: (event: RelayEvent) => void;
}

/** The whole target is out. New and failed messages share the waiting, so that it is tried and told once. */
export class TargetOutage {
  readonly #settings: Settings;
  #attempt = 0;
  #foundAt = 0;
  #until = 0;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  /** Found out again; how long to wait before the next try. */
  found(cause: unknown, retryAfterMs?: number): number {
    const { name: relay, clock, outageBackoff, emit } = this.#settings;
    const now = clock.monotonic();
    this.#foundAt = now;
    if (this.#until > now) return this.#until - now;
    const delayMs = outageMs(++this.#attempt, outageBackoff, retryAfterMs);
    this.#until = now + delayMs;
    emit({ type: "outage", relay, error: describeError(cause), attempt: this.#attempt, delayMs });
    return delayMs;
  }

  /** How long it is to be left alone still, in ms. */
  get leftMs(): number {
    return Math.max(0, this.#until - this.#settings.clock.monotonic());
  }

  /**
   * A message went through that was begun at that time: only one begun after the outage was found shows that it is
   * over.
   */
  over(begunAt: number): void {
    if (this.#attempt === 0 || begunAt < this.#foundAt) return;
    this.#attempt = 0;
    this.#until = 0;
    this.#settings.emit({ type: "recovered", relay: this.#settings.name });
  }
}
