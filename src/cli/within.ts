/** What `within` gives instead of a value when the time is over. */
export const LATE: unique symbol = Symbol("late");

/** The promise's value, or LATE after this time. What the promise does after that is ignored. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T | typeof LATE> {
  promise.catch(() => undefined);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<typeof LATE>((resolve) => (timer = setTimeout(resolve, ms, LATE)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** How long what was told to stop may still take, such as a database that gives no answer. */
const STUCK_MS = 10_000;

/** The promise's value, or LATE when it has not ended some seconds after the signal. */
export async function unlessStuck<T>(
  signal: AbortSignal,
  promise: Promise<T>,
  patienceMs: number = STUCK_MS,
): Promise<T | typeof LATE> {
  const stopped = new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
  promise.catch(() => undefined);
  return Promise.race([promise, stopped.then(() => within(patienceMs, promise))]);
}
