import { outageMs } from "../core/backoff.ts";
import type { BackoffOptions } from "../core/backoff.ts";
import type { Clock } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import type { RelayEvent } from "../core/events.ts";

/** A part of the target that is out, such as a full queue or one receiver. */
export interface RouteOutage {
  readonly route: string;
  /** How many times in a row it was found out. */
  readonly attempt: number;
  readonly error: string;
}

interface Settings {
  readonly name: string;
  readonly clock: Clock;
  readonly outageBackoff: BackoffOptions;
  readonly emit: (event: RelayEvent) => void;
}

/** What waits for a route tries it when its time is over. When nothing has found it out for so long after, nothing waits for it here. */
const FORGOTTEN_AFTER_MS = 60_000;

/** Which routes are out, as far as this process has seen, and when each is tried again. */
export class RouteOutages {
  readonly #settings: Settings;
  readonly #routes = new Map<string, RouteOutage & { until: number }>();

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  list(): RouteOutage[] {
    this.#forget();
    return [...this.#routes.values()].map(({ route, attempt, error }) => ({ route, attempt, error }));
  }

  /** A message found the route out; how long to leave it alone. Messages of one batch count as one attempt. */
  out(route: string, cause: unknown, retryAfterMs?: number): number {
    const { name: relay, clock, outageBackoff, emit } = this.#settings;
    this.#forget();
    const now = clock.monotonic();
    const known = this.#routes.get(route);
    if (known !== undefined && known.until > now) return known.until - now;
    const attempt = (known?.attempt ?? 0) + 1;
    const error = describeError(cause ?? "not available");
    const delayMs = outageMs(attempt, outageBackoff, retryAfterMs);
    // At the end again: the first are those that were found out longest ago.
    this.#routes.delete(route);
    this.#routes.set(route, { route, attempt, error, until: now + delayMs });
    emit({ type: "route_out", relay, route, error, attempt, delayMs });
    return delayMs;
  }

  /** A message went through that had waited for the route. */
  back(route: string): void {
    if (this.#routes.delete(route)) this.#settings.emit({ type: "route_back", relay: this.#settings.name, route });
  }

  /** Its messages may have died, or gone to another process, or their keys were loaded anew. */
  #forget(): void {
    const longAgo = this.#settings.clock.monotonic() - FORGOTTEN_AFTER_MS;
    for (const [route, { until }] of this.#routes) {
      if (until > longAgo) return;
      this.back(route);
    }
  }
}
