import { type ABORTED, LATE, settledWithin } from "../../adapter/index.ts";

/** The right to use what the mutex guards. */
export interface Turn {
  /** A sign of life: waiting callers go on waiting. */
  readonly alive: () => void;
  readonly end: () => void;
}

/** One after another, in the order they asked. */
export class Mutex {
  #last: Promise<void> | undefined;
  #aliveAt = 0;

  /**
   * Waits for the turn. LATE: the present holder gave no sign of life for so long; a turn with such signs may take any
   * time.
   */
  async take(silentMs: number, signal?: AbortSignal): Promise<Turn | typeof LATE | typeof ABORTED> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    const turn: Turn = {
      alive: () => void (this.#aliveAt = performance.now()),
      end: () => {
        if (this.#last === promise) this.#last = undefined;
        resolve();
      },
    };
    const outcome = before === undefined ? undefined : await this.#wait(before, silentMs, signal);
    if (outcome === undefined) {
      turn.alive();
      return turn;
    }
    void before?.then(turn.end);
    return outcome;
  }

  async #wait(
    before: Promise<void>,
    silentMs: number,
    signal: AbortSignal | undefined,
  ): Promise<typeof LATE | typeof ABORTED | undefined> {
    for (;;) {
      const leftMs = this.#aliveAt + silentMs - performance.now();
      if (leftMs <= 0) return LATE;
      const outcome = await settledWithin(before, leftMs, signal);
      if (outcome !== LATE) return outcome ?? undefined;
    }
  }
}

const mutexes = new WeakMap<object, Mutex>();

/** That of one client, however many use it. */
export function mutexOf(client: object): Mutex {
  const known = mutexes.get(client) ?? new Mutex();
  mutexes.set(client, known);
  return known;
}
