import { backoffMs, type BackoffOptions } from "../core/backoff.ts";
import { describeError } from "../core/errors.ts";
import type { SubscriberSettings } from "./subscriber-options.ts";

const LEAST_MS = 10;

/** A subscriber that cannot reach its broker: told and waited out, longer each time, and told once when it is over. */
export class SubscriberOutage {
  readonly #consumer: string;
  readonly #settings: SubscriberSettings;
  readonly #backoff: BackoffOptions;
  #attempt = 0;

  constructor(consumer: string, settings: SubscriberSettings, backoff: BackoffOptions = settings.outageBackoff) {
    this.#consumer = consumer;
    this.#settings = settings;
    this.#backoff = backoff;
  }

  /** Resolves when it is time to try again, or when the signal aborts. */
  async waitOut(cause: unknown, stopping: AbortSignal): Promise<void> {
    const { emit, clock } = this.#settings;
    const delayMs = Math.max(LEAST_MS, backoffMs(++this.#attempt, this.#backoff));
    const error = describeError(cause);
    emit({ type: "outage", consumer: this.#consumer, error, attempt: this.#attempt, delayMs });
    await clock.sleep(delayMs, stopping);
  }

  /** Calls `take` again and again until the signal aborts. What it throws is an outage; when it resolves, that is over. */
  async keepTaking(take: () => Promise<void>, stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      try {
        await take();
        this.over();
      } catch (error) {
        if (!stopping.aborted) await this.waitOut(error, stopping);
      }
    }
  }

  over(): void {
    if (this.#attempt > 0) this.#settings.emit({ type: "recovered", consumer: this.#consumer });
    this.#attempt = 0;
  }
}
