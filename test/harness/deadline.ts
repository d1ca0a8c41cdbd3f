import { setTimeout as sleep } from "node:timers/promises";

/** Rejects with a message that names `what` when the promise is not settled in time. */
export async function withDeadline<T>(promise: Promise<T>, timeoutMs: number, what: string): Promise<T> {
  const abort = new AbortController();
  const late = sleep(timeoutMs, undefined, { signal: abort.signal }).then(() => {
    throw new Error(`${what}: not within ${timeoutMs} ms`);
  });
  // Once the race is decided, no code waits for the loser any more.
  late.catch(() => undefined);
  try {
    return await Promise.race([promise, late]);
  } finally {
    abort.abort();
  }
}

/** How long a test waits for what happens at once on a quiet machine: a busy one may take ten times as long. */
const PATIENCE_MS = 30_000;

export interface UntilOptions {
  readonly what: string;
  readonly timeoutMs?: number;
  readonly intervalMs?: number;
}

/** Polls until `check` gives something other than undefined or false, and returns that. */
export async function until<T>(
  check: () => T | undefined | false | Promise<T | undefined | false>,
  options: UntilOptions,
): Promise<T> {
  const { what, timeoutMs = PATIENCE_MS, intervalMs = 20 } = options;
  const endsAt = performance.now() + timeoutMs;
  for (;;) {
    const value = await check();
    if (value !== undefined && value !== false) return value;
    if (performance.now() > endsAt) throw new Error(`${what}: not within ${timeoutMs} ms`);
    await sleep(intervalMs);
  }
}
