import { TxboxError } from "../core/errors.ts";

/** What has begun and can be ended. */
export interface Subscription {
  /** Takes no more, waits for what is in hand, and gives back what has not begun. */
  stop(): Promise<void>;
}

interface Started {
  readonly serves: string;
  readonly stopping: AbortController;
  readonly begun: Promise<Subscription>;
  stopped?: Promise<void>;
}

/**
 * Runs one thing at a time: a second `start` is an error, until `stop` has ended or `start` has failed. `stop` may be
 * called at any time, and twice; it waits for a `start` that is under way, which is told by its signal.
 */
export class RunsOnce {
  readonly #what: string;
  #current: Started | undefined;

  /** Such as "subscriber"; for the error. */
  constructor(what: string) {
    this.#what = what;
  }

  async start(serves: string, begin: (stopping: AbortSignal) => Promise<Subscription>): Promise<void> {
    if (this.#current !== undefined) {
      throw new TxboxError("invalid_option", `This ${this.#what} already serves ${this.#current.serves}`, {
        fix: `Stop it first, or create another one for ${serves}`,
      });
    }
    const stopping = new AbortController();
    const mine: Started = { serves, stopping, begun: begin(stopping.signal) };
    this.#current = mine;
    try {
      await mine.begun;
    } catch (error) {
      if (this.#current === mine) this.#current = undefined;
      throw error;
    }
  }

  async stop(): Promise<void> {
    const mine = this.#current;
    if (mine === undefined) return;
    mine.stopping.abort();
    mine.stopped ??= mine.begun.then(
      (subscription) => subscription.stop(),
      // Its `start` has told.
      () => undefined,
    );
    try {
      await mine.stopped;
    } finally {
      if (this.#current === mine) this.#current = undefined;
    }
  }
}
