import { TxboxError } from "../core/errors.ts";

/** How long the transaction of an overdue handler may take to roll back before nobody waits for it. */
const GRACE_MS = 1000;

/** A deadline for handlers, and one a little later for the transactions they run in. */
export interface Overdue {
  /** Rejects when the receipt has not been had in time: another delivery of the message holds it. */
  wait<T>(receiving: Promise<T>): Promise<T>;
  /** Rejects when the handler has not ended in time; what it does later is not awaited. */
  race<T>(run: (context: { readonly signal: AbortSignal }) => Promise<T>, outer: AbortSignal): Promise<T>;
  /** Rejects when a transaction has not ended soon after its handler was given up: a query may hold its connection. */
  guard<T>(transaction: Promise<T>): Promise<T>;
}

export function overdueAfter(timeoutMs: number): Overdue {
  const late = Promise.withResolvers<never>();
  late.promise.catch(() => undefined);
  let grace: NodeJS.Timeout | undefined;

  async function inTime<T>(running: Promise<T>, why: () => TxboxError, giveUp?: (error: Error) => void): Promise<T> {
    running.catch(() => undefined);
    const given = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      const error = why();
      grace = setTimeout(() => late.reject(error), GRACE_MS);
      giveUp?.(error);
      given.reject(error);
    }, timeoutMs);
    try {
      return await Promise.race([running, given.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    wait: (receiving) => inTime(receiving, () => receiptHeld(timeoutMs)),
    race(run, outer) {
      const context = new LazySignal(outer);
      return inTime(
        run(context),
        () => timedOut(timeoutMs),
        (error) => context.abort(error),
      );
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

/** Most handlers never look at their signal, and making one is not cheap. */
class LazySignal {
  readonly #outer: AbortSignal;
  #own: AbortController | undefined;
  #signal: AbortSignal | undefined;
  #reason: Error | undefined;

  constructor(outer: AbortSignal) {
    this.#outer = outer;
  }

  get signal(): AbortSignal {
    if (this.#signal === undefined) {
      this.#own = new AbortController();
      this.#signal = AbortSignal.any([this.#outer, this.#own.signal]);
      if (this.#reason !== undefined) this.#own.abort(this.#reason);
    }
    return this.#signal;
  }

  abort(reason: Error): void {
    this.#reason = reason;
    this.#own?.abort(reason);
  }
}

function receiptHeld(timeoutMs: number): TxboxError {
  return new TxboxError("handler_timeout", `Another delivery held the message's receipt for ${timeoutMs} ms`, {
    retryable: true,
    fix: "Look for a handler that hangs in a query",
  });
}

function timedOut(timeoutMs: number): TxboxError {
  return new TxboxError("handler_timeout", `The handler did not end within ${timeoutMs} ms`, {
    retryable: true,
    fix: "Make it faster, let it heed its signal, or raise handlerTimeoutMs",
  });
}
