export interface BackoffOptions {
  /** Ceiling of the first delay. */
  baseMs: number;
  maxMs: number;
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
