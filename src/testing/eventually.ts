import { AssertionError } from "node:assert";
import { setTimeout as sleep } from "node:timers/promises";

export interface EventuallyOptions {
  readonly timeoutMs?: number;
  readonly intervalMs?: number;
  /** Errors worth another look; default: all. */
  readonly retryIf?: (error: unknown) => boolean;
}

/** Runs `check` until it stops throwing, and gives what it returned; after the time allowed, what it threw last. */
export async function eventually<T>(check: () => T | Promise<T>, options: EventuallyOptions = {}): Promise<T> {
  const { timeoutMs = 20_000, intervalMs = 10, retryIf = () => true } = options;
  const endsAt = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (performance.now() > endsAt || !retryIf(error)) throw error;
    }
    await sleep(intervalMs);
  }
}

/** The same for assertions only: what the store itself throws is not waited out. */
export function eventuallyTrue<T>(check: () => Promise<T>, options: EventuallyOptions = {}): Promise<T> {
  return eventually(check, { ...options, retryIf: (error) => error instanceof AssertionError });
}

/** Rejects when the promise is not settled in time: no case may hang. */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  const abort = new AbortController();
  const late = sleep(ms, undefined, { signal: abort.signal }).then(() => {
    throw new Error(`${what}: not within ${ms} ms`);
  });
  late.catch(() => undefined);
  try {
    return await Promise.race([promise, late]);
  } finally {
    abort.abort();
  }
}

export interface Background<T> {
  readonly running: boolean;
  readonly done: Promise<T>;
}

/** Something that goes on beside the case, which can see whether it still runs. */
export function background<T>(run: () => Promise<T>): Background<T> {
  let running = true;
  const done = run().finally(() => (running = false));
  done.catch(() => undefined);
  return {
    get running() {
      return running;
    },
    done,
  };
}
