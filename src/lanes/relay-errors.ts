import type { JoinOptions } from "../core/contracts.ts";
import { TxboxError } from "../core/errors.ts";

export function leaseLost(relay: string): TxboxError {
  return new TxboxError("lease_lost", `Relay "${relay}": the lease went to another owner, or has run out`, {
    retryable: true,
  });
}

export function tooSlow(relay: string): TxboxError {
  return new TxboxError("unavailable", `Relay "${relay}": the database gives up reading even a single message`, {
    fix: "Raise its limit of time for statements, or look for what makes it slow",
    retryable: true,
  });
}

/** The streams of a relay are fixed when it is created. */
export function requireSameStreams({ relay, streams }: JoinOptions, stored: readonly string[] | null): void {
  if (streams === undefined) return;
  const same =
    stored !== null && stored.length === streams.length && stored.every((stream) => streams.includes(stream));
  if (same) return;
  throw new TxboxError(
    "invalid_option",
    `Relay "${relay}" exists with ${stored === null ? "all streams" : `streams ${stored.join(", ")}`}`,
    { field: "streams", fix: "Leave streams as they were, or give the relay another name" },
  );
}
