import type { PublishProgress } from "./contracts.ts";
import { describeError, UnavailableError } from "./errors.ts";

/**
 * Whether a publisher may still begin a message of its batch. Ask right before each send: after a pause of the process
 * the timer behind the signal has not run yet, and only `progress` knows that the lease is over.
 */
export function mayBegin(signal: AbortSignal, progress: PublishProgress | undefined): boolean {
  return !signal.aborted && progress?.mayBegin() !== false;
}

/** The error of messages that were given up because the signal aborted; it says why. */
export function givenUp(signal: AbortSignal): UnavailableError {
  const { reason } = signal as { reason: unknown };
  const why = reason instanceof Error ? reason.message : describeError(reason ?? "the lease is over");
  return new UnavailableError(`Given up: ${why}`, { cause: reason });
}
