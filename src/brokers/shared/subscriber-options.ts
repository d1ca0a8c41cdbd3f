import type { BackoffOptions } from "../../core/backoff.ts";
import { systemClock } from "../../core/clock.ts";
import type { Clock } from "../../core/contracts.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { teller } from "../../core/teller.ts";

/** What a subscriber tells its host; all of it is rare. */
export type SubscriberEvent =
  | { type: "retry"; consumer: string; id: string | undefined; attempts: number; delayMs: number; error: string }
  /** Put aside as a dead letter; the consumer goes on. */
  | { type: "dead"; consumer: string; id: string | undefined; attempts: number; error: string }
  /** The broker, or what the handler needs, is out: nothing counts as an attempt until it is back. */
  | { type: "outage"; consumer: string; error: string; attempt: number; delayMs: number }
  | { type: "recovered"; consumer: string };

/** Options that every subscriber has. */
export interface SubscriberOptions {
  /** Messages of different keys handled at once. Default 10. */
  concurrency?: number;
  /** Messages taken from the broker and not acknowledged yet. Default 200. */
  prefetch?: number;
  /** Bytes of the bodies of those messages. One message always passes, however large. Default 64 MiB. */
  prefetchBytes?: number;
  /** Failed attempts until a message is put aside as a dead letter. Default 10. */
  maxAttempts?: number;
  /** Delay between attempts, with full jitter; later messages of the key wait. Default: 1 s, doubling up to 1 minute. */
  backoff?: BackoffOptions;
  onEvent?: (event: SubscriberEvent) => void;
  clock?: Clock;
}

export interface SubscriberSettings {
  concurrency: number;
  prefetch: number;
  prefetchBytes: number;
  maxAttempts: number;
  backoff: BackoffOptions;
  outageBackoff: BackoffOptions;
  emit: (event: SubscriberEvent) => void;
  clock: Clock;
}

export const SUBSCRIBER_OPTIONS = [
  "concurrency",
  "prefetch",
  "prefetchBytes",
  "maxAttempts",
  "backoff",
  "onEvent",
  "clock",
] as const;

const DEFAULT_BYTES = 64 * 1024 * 1024;

/** Checks what all subscribers have in common; `of` is the function that was called. */
export function subscriberSettings(of: string, options: SubscriberOptions): SubscriberSettings {
  const { concurrency = 10, prefetch = 200, maxAttempts = 10, backoff = { baseMs: 1000, maxMs: 60_000 } } = options;
  requireInteger(of, "concurrency", concurrency, 1, 10_000);
  requireInteger(of, "prefetch", prefetch, 1, 65_535);
  const { prefetchBytes = DEFAULT_BYTES } = options;
  requireInteger(of, "prefetchBytes", prefetchBytes, 1, 2 ** 31 - 1);
  requireInteger(of, "maxAttempts", maxAttempts, 1);
  rejectUnknownOptions(`${of} backoff`, backoff, ["baseMs", "maxMs"]);
  requireInteger(of, "backoff.baseMs", backoff.baseMs, 0);
  requireInteger(of, "backoff.maxMs", backoff.maxMs, backoff.baseMs);
  const { onEvent } = options;
  return {
    concurrency,
    prefetch,
    prefetchBytes,
    maxAttempts,
    backoff,
    outageBackoff: { baseMs: 100, maxMs: 10_000 },
    emit: teller(onEvent),
    clock: options.clock ?? systemClock,
  };
}
