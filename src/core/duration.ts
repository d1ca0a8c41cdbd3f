const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** A span of time as people say it: `12 s`, `3 min`, `5 h`, `2 days`. */
export function duration(ms: number): string {
  if (ms < 2 * MINUTE_MS) return `${Math.round(ms / 1000)} s`;
  if (ms < 120 * MINUTE_MS) return `${Math.round(ms / MINUTE_MS)} min`;
  return ms < 2 * DAY_MS ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / DAY_MS)} days`;
}
