import { systemClock } from "./clock.ts";
import type { Clock } from "./contracts.ts";

/** The time was over first. */
export const LATE: unique symbol = Symbol("late");
/** The signal aborted first. */
export const ABORTED: unique symbol = Symbol("aborted");

/**
 * What a promise resolves to, or why it is not waited for any longer. What it comes to after that is ignored, an error
 * too; the work behind it goes on.
 */
export async function settledWithin<T>(
  promise: Promise<T>,
  ms: number,
  signal?: AbortSignal,
  clock: Clock = systemClock,
): Promise<T | typeof LATE | typeof ABORTED> {
  promise.catch(() => undefined);
  if (signal?.aborted === true) return ABORTED;
  const over = new AbortController();
  const { promise: ended, resolve } = Promise.withResolvers<typeof LATE | typeof ABORTED>();
  const abort = (): void => resolve(ABORTED);
  signal?.addEventListener("abort", abort);
  void clock.sleep(ms, over.signal).then(() => resolve(LATE));
  try {
    return await Promise.race([promise, ended]);
  } finally {
    // With a reason of its own: to make the usual one would cost half of all this.
    over.abort(LATE);
    signal?.removeEventListener("abort", abort);
  }
}
