export interface BackoffOptions {
  /** Ceiling of the first delay. */
  baseMs: number;
  maxMs: number;
}

/** No target is left alone for longer, whatever it asks for: a day. */
const LONGEST_MS = 86_400_000;

/** How long to leave a target alone that was found out so often; it may ask for more. */
export function outageMs(attempt: number, backoff: BackoffOptions, retryAfterMs = 0): number {
  const asked = Number.isNaN(retryAfterMs) ? 0 : Math.min(retryAfterMs, LONGEST_MS);
  return Math.max(10, backoffMs(attempt, backoff), asked);
}

/** Exponential backoff with full jitter: anywhere between 0 and min(maxMs, baseMs · 2^(attempt − 1)). */
export function backoffMs(
  attempt: number,
  { baseMs, maxMs }: BackoffOptions,
  random: () => number = Math.random,
): number {
  const ceiling = Math.min(maxMs, baseMs * 2 ** Math.min(attempt - 1, 30));
  return Math.floor(random() * ceiling);
}
