import { TxboxError } from "../core/errors.ts";

/** How long the transaction of an overdue handler may take to roll back before the inbox stops waiting for it. */
const GRACE_MS = 1000;

/** A deadline for one delivery: its receipt, then its handler, and a little later the transaction they run in. */
export class HandlerDeadline {
  readonly #timeoutMs: number;
  #timer: NodeJS.Timeout | undefined;
  /** What is late when the timer fires; nothing between two steps. */
  #onLate: (() => void) | undefined;
  #giveUpTransaction: ((error: Error) => void) | undefined;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /** Rejects when the receipt has not been had in time: another delivery of the message holds it. */
  wait<T>(receiving: Promise<T>): Promise<T> {
    return this.#inTime(receiving, receiptHeld);
  }

  /** Rejects when the handler has not ended in time; what it does later is not awaited. */
  race<T>(run: (context: { readonly signal: AbortSignal }) => Promise<T>, outer: AbortSignal): Promise<T> {
    const context = new LazySignal(outer);
    return this.#inTime(run(context), timedOut, (error) => context.abort(error));
  }

  /** Rejects when a transaction has not ended soon after its handler was given up: a query may hold its connection. */
  guard<T>(transaction: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#giveUpTransaction = reject;
      transaction.then(resolve, reject).finally(() => clearTimeout(this.#timer));
    });
  }

  // By hand rather than by Promise.race, which costs several times as much, and this is done for every message.
  #inTime<T>(
    running: Promise<T>,
    why: (timeoutMs: number) => TxboxError,
    onGivenUp?: (error: Error) => void,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#onLate = () => {
        const error = why(this.#timeoutMs);
        this.#timer = setTimeout(() => this.#giveUpTransaction?.(error), GRACE_MS);
        onGivenUp?.(error);
        reject(error);
      };
      this.#startTimer();
      // Cleared before the waiting code goes on, and perhaps begins the next step.
      running.then(
        (value) => {
          this.#onLate = undefined;
          resolve(value);
        },
        (error: unknown) => {
          this.#onLate = undefined;
          reject(error);
        },
      );
    });
  }

  #startTimer(): void {
    if (this.#timer === undefined) this.#timer = setTimeout(() => this.#onLate?.(), this.#timeoutMs);
    else this.#timer.refresh();
  }
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
