import type { StreamGroup } from "./stream-group.ts";

const RETRY_MS = 250;

/** The entries that this process has taken and Redis still counts as pending; those that are done are acknowledged together. */
export class HeldEntries {
  readonly #group: StreamGroup;
  /** By id, in the order they were taken. */
  readonly #held = new Map<string, AbortController>();
  readonly #onFree = new Set<() => void>();
  #done: string[] = [];
  #flushing: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #open = 0;

  constructor(group: StreamGroup) {
    this.#group = group;
  }

  has(id: string): boolean {
    return this.#held.has(id);
  }

  get ids(): string[] {
    return [...this.#held.keys()];
  }

  add(id: string, lost: AbortController): void {
    this.#held.set(id, lost);
    this.#open++;
  }

  /** Acknowledges it, with whatever else is done by then; tries again until it works. */
  done(id: string): void {
    this.#closed();
    this.#done.push(id);
    if (this.#done.length === 1) setImmediate(() => void this.flush());
  }

  /** It is no longer ours, or not pending any more. */
  drop(id: string): void {
    if (this.#held.delete(id)) this.#closed();
  }

  /** Another has taken it over. */
  lose(id: string): void {
    this.#held.get(id)?.abort();
  }

  /** Resolves when no entry is being worked on. */
  async free(): Promise<void> {
    while (this.#open > 0) await new Promise<void>((resolve) => this.#onFree.add(resolve));
  }

  /** Never rejects; false when something could not be acknowledged. */
  async flush(): Promise<boolean> {
    clearTimeout(this.#retry);
    while (this.#done.length > 0) {
      if (this.#flushing !== undefined) {
        await this.#flushing;
        continue;
      }
      const ids = this.#done;
      this.#done = [];
      let failed = false;
      this.#flushing = this.#group.acknowledge(ids).then(
        () => ids.forEach((id) => this.#held.delete(id)),
        () => {
          failed = true;
          this.#done = [...ids, ...this.#done];
        },
      );
      await this.#flushing;
      this.#flushing = undefined;
      if (!failed) continue;
      clearTimeout(this.#retry);
      this.#retry = setTimeout(() => void this.flush(), RETRY_MS);
      return false;
    }
    return true;
  }

  /** Forgets what could not be acknowledged: it will come again. */
  end(): void {
    clearTimeout(this.#retry);
    this.#done = [];
    this.#held.clear();
  }

  #closed(): void {
    if (--this.#open > 0) return;
    const waiting = [...this.#onFree];
    this.#onFree.clear();
    for (const resolve of waiting) resolve();
  }
}
