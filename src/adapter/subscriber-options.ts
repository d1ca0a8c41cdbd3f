import type { BackoffOptions } from "../core/backoff.ts";
import type { Clock } from "../core/contracts.ts";
import { eventEmitter } from "../core/channels.ts";
import type { SubscriberEvent } from "../core/events.ts";
import { backoff, callback, clock, integer, type OptionSpec } from "./option-spec.ts";

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

/** What a subscriber works with: its options after checks and defaults. */
export interface SubscriberSettings {
  readonly concurrency: number;
  readonly prefetch: number;
  readonly prefetchBytes: number;
  readonly maxAttempts: number;
  readonly backoff: BackoffOptions;
  readonly outageBackoff: BackoffOptions;
  readonly emit: (event: SubscriberEvent) => void;
  readonly clock: Clock;
  /** The broker, as traces and metrics name it: "rabbitmq". */
  readonly system?: string | undefined;
}

type Common = Required<SubscriberOptions>;

/** Specs of the options that every subscriber has, to be spread into those of an adapter. */
export const SUBSCRIBER_OPTIONS: { readonly [Name in keyof Common]: OptionSpec<Common[Name]> } = {
  concurrency: integer(1, 10_000, 10),
  prefetch: integer(1, 65_535, 200),
  prefetchBytes: integer(1, 2 ** 31 - 1, 64 * 1024 * 1024),
  maxAttempts: integer(1, Number.MAX_SAFE_INTEGER, 10),
  backoff: backoff({ baseMs: 1000, maxMs: 60_000 }),
  onEvent: callback<Common["onEvent"]>("Pass onEvent: (event) => { … }", () => undefined),
  clock,
};

/** From options that were read with SUBSCRIBER_OPTIONS; `system` is the broker, as traces and metrics name it. */
export function subscriberSettings(options: Common, system?: string): SubscriberSettings {
  const { concurrency, prefetch, prefetchBytes, maxAttempts, backoff, onEvent, clock } = options;
  const outageBackoff = { baseMs: 100, maxMs: 10_000 };
  const emit = eventEmitter("subscriber", onEvent);
  return { concurrency, prefetch, prefetchBytes, maxAttempts, backoff, outageBackoff, emit, clock, system };
}
