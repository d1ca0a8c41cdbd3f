/** What it resolves to, or why that was not waited for. */
export async function settledWithin<T>(
  promise: Promise<T>,
  ms: number,
  signal: AbortSignal,
): Promise<T | "late" | "aborted"> {
  // Nobody waits for it any more after that.
  promise.catch(() => undefined);
  if (signal.aborted) return "aborted";
  const { promise: given, resolve } = Promise.withResolvers<"late" | "aborted">();
  const abort = (): void => resolve("aborted");
  const timer = setTimeout(resolve, ms, "late");
  signal.addEventListener("abort", abort);
  try {
    return await Promise.race([promise, given]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
  }
}

/** One after another, in the order they asked. */
export class Turns {
  #last: Promise<void> | undefined;

  /** Gives what ends the turn, when it has come; or why it was not waited for. */
  async take(ms: number, signal: AbortSignal): Promise<(() => void) | "late" | "aborted"> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    const end = (): void => {
      if (this.#last === promise) this.#last = undefined;
      resolve();
    };
    if (before === undefined) return end;
    const outcome = await settledWithin(before, ms, signal);
    if (outcome === undefined) return end;
    void before.then(end);
    return outcome;
  }
}

const turns = new WeakMap<object, Turns>();

/** Those of one client, whoever uses it. */
export function turnsOf(client: object): Turns {
  const known = turns.get(client) ?? new Turns();
  turns.set(client, known);
  return known;
}
