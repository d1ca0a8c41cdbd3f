import { systemClock } from "../core/clock.ts";
import { errorCode } from "../core/errors.ts";
import { inBatches } from "./in-batches.ts";
import { repeat } from "./repeat.ts";

/** For each id why the broker refused it, or undefined; a PermanentError: the message is not this process's any more. */
export type Refusals = readonly (Error | undefined)[];

/** How a broker is told of messages in hand, each by an id such as its receipt. */
export interface HeldMessagesOptions {
  /** Ids in one call. Default: no limit. */
  readonly most?: number;
  /** These are done. What is refused for now is told again; all of it when this rejects. */
  acknowledge(ids: readonly string[]): Promise<Refusals>;
  /** These are being worked on. */
  renew?(ids: readonly string[]): Promise<Refusals>;
  /** These may go to others at once. */
  release?(ids: readonly string[]): Promise<unknown>;
  /**
   * How long the broker leaves a message to this process. They are renewed at a third of that time, and lost when that did
   * not work until it is over. Default: call `renew` yourself, and a message is lost when that says so.
   */
  readonly holdMs?: number;
}

interface Held {
  readonly lost: AbortController;
  readonly group: string | undefined;
  timer?: NodeJS.Timeout;
}

const RETRY_MS = 250;

/** The messages that this process has taken and its broker still counts as such; those that are done are acknowledged together. */
export class HeldMessages {
  readonly #options: HeldMessagesOptions;
  readonly #most: number;
  /** By id, in the order they were taken. */
  readonly #held = new Map<string, Held>();
  readonly #onFree = new Set<() => void>();
  readonly #giveBack: (id: string) => Promise<unknown>;
  readonly #ended = new AbortController();
  #done: string[] = [];
  #flushing: Promise<void> | undefined;
  #tending: Promise<void> | undefined;
  #renewing: Promise<unknown> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #open = 0;

  constructor(options: HeldMessagesOptions) {
    this.#options = options;
    this.#most = options.most ?? Number.POSITIVE_INFINITY;
    this.#giveBack = inBatches({ most: this.#most }, async (ids) => {
      await options.release?.(ids);
      return ids;
    });
  }

  has(id: string): boolean {
    return this.#held.has(id);
  }

  /** Gives the signal that aborts when it is lost. Messages of one group are lost together: none of them may overtake. */
  add(id: string, group?: string, lost: AbortController = new AbortController()): AbortSignal {
    const { holdMs } = this.#options;
    if (holdMs !== undefined) this.#tending ??= repeat(holdMs / 3, () => this.renew(), this.#ended.signal, systemClock);
    this.#held.set(id, { lost, group });
    this.#open++;
    this.#keep(id, performance.now());
    return lost.signal;
  }

  /** Acknowledges it, with whatever else is done by then; tries again until it works. */
  done(id: string): void {
    this.#closed();
    this.#done.push(id);
    if (this.#done.length === 1) setImmediate(() => void this.flush());
  }

  /** It is no longer ours, or not pending any more. */
  drop(id: string): void {
    if (this.#forget(id)) this.#closed();
  }

  /** Gives it back, with whatever else is given back in this turn, and once no renewal can come after that. */
  async release(id: string): Promise<void> {
    this.drop(id);
    await this.#renewing;
    await this.#giveBack(id);
  }

  /** Another has taken it over, or may have. */
  lose(id: string): void {
    const held = this.#held.get(id);
    held?.lost.abort();
    if (held?.group === undefined) return;
    for (const one of this.#held.values()) if (one.group === held.group) one.lost.abort();
  }

  /** Renews all of them. */
  async renew(): Promise<void> {
    const ids = [...this.#held.keys()];
    const parts: Promise<void>[] = [];
    for (let from = 0; from < ids.length; from += this.#most)
      parts.push(this.#renew(ids.slice(from, from + this.#most)));
    this.#renewing = Promise.allSettled(parts);
    await Promise.all(parts);
  }

  /** Resolves when no message is being worked on. */
  async free(): Promise<void> {
    while (this.#open > 0) await new Promise<void>((resolve) => this.#onFree.add(resolve));
  }

  /** Never rejects; false when something could not be acknowledged. */
  async flush(): Promise<boolean> {
    clearTimeout(this.#retry);
    while (this.#done.length > 0 || this.#flushing !== undefined) {
      if (this.#flushing !== undefined) {
        await this.#flushing;
        continue;
      }
      const ids = this.#done.splice(0, this.#most);
      let again: readonly string[] = ids;
      this.#flushing = this.#options.acknowledge(ids).then(
        (refusals) => {
          again = ids.filter((_, i) => refusals[i] !== undefined && errorCode(refusals[i]) !== "permanent");
          for (const id of ids) if (!again.includes(id)) this.#forget(id);
        },
        () => undefined,
      );
      await this.#flushing;
      this.#flushing = undefined;
      if (again.length === 0) continue;
      this.#done = [...again, ...this.#done];
      clearTimeout(this.#retry);
      this.#retry = setTimeout(() => void this.flush(), RETRY_MS);
      return false;
    }
    return true;
  }

  /** Acknowledges what is done and forgets the rest, which will come again. False when that could not be acknowledged. */
  async end(): Promise<boolean> {
    const told = await this.flush();
    clearTimeout(this.#retry);
    this.#ended.abort();
    await this.#tending;
    this.#done = [];
    for (const id of this.#held.keys()) this.#forget(id);
    return told;
  }

  async #renew(ids: readonly string[]): Promise<void> {
    const now = performance.now();
    const refusals = (await this.#options.renew?.(ids)) ?? [];
    for (const [i, id] of ids.entries()) {
      if (refusals[i] === undefined) this.#keep(id, now);
      else if (errorCode(refusals[i]) === "permanent") this.lose(id);
    }
  }

  /** It is ours for some time from then on. */
  #keep(id: string, from: number): void {
    const { holdMs } = this.#options;
    const held = this.#held.get(id);
    if (held === undefined || holdMs === undefined) return;
    clearTimeout(held.timer);
    held.timer = setTimeout(() => this.lose(id), holdMs - (performance.now() - from));
  }

  #forget(id: string): boolean {
    clearTimeout(this.#held.get(id)?.timer);
    return this.#held.delete(id);
  }

  #closed(): void {
    if (--this.#open > 0) return;
    const waiting = [...this.#onFree];
    this.#onFree.clear();
    for (const resolve of waiting) resolve();
  }
}
