import { TxboxError } from "../core/errors.ts";

/** How long the transaction of an overdue handler may take to roll back before nobody waits for it. */
const GRACE_MS = 1000;

/** A deadline for handlers, and one a little later for the transactions they run in. */
export interface Overdue {
  /** Rejects when the handler has not ended in time; what it does later is not awaited. */
  race<T>(run: (signal: AbortSignal) => Promise<T>, outer: AbortSignal): Promise<T>;
  /** Rejects when a transaction has not ended soon after its handler was given up: a query may hold its connection. */
  guard<T>(transaction: Promise<T>): Promise<T>;
}

export function overdueAfter(timeoutMs: number): Overdue {
  const late = Promise.withResolvers<never>();
  late.promise.catch(() => undefined);
  let grace: NodeJS.Timeout | undefined;

  return {
    async race(run, outer) {
      const controller = new AbortController();
      const given = Promise.withResolvers<never>();
      const timer = setTimeout(() => {
        const error = timedOut(timeoutMs);
        grace = setTimeout(() => late.reject(error), GRACE_MS);
        controller.abort(error);
        given.reject(error);
      }, timeoutMs);
      const running = run(AbortSignal.any([outer, controller.signal]));
      running.catch(() => undefined);
      try {
        return await Promise.race([running, given.promise]);
      } finally {
        clearTimeout(timer);
      }
    },
    async guard(transaction) {
      try {
        return await Promise.race([transaction, late.promise]);
      } finally {
        clearTimeout(grace);
      }
    },
  };
}

function timedOut(timeoutMs: number): TxboxError {
  return new TxboxError("handler_timeout", `The handler did not end within ${timeoutMs} ms`, {
    retryable: true,
    fix: "Make it faster, let it heed its signal, or raise handlerTimeoutMs",
  });
}
