/** What `within` gives instead of a value when the time is over. */
export const LATE: unique symbol = Symbol("late");

/** The promise's value, or LATE after this time. What the promise does after that is its own business. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T | typeof LATE> {
  promise.catch(() => undefined);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<typeof LATE>((resolve) => (timer = setTimeout(resolve, ms, LATE)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
