import type { PublishResult } from "./contracts.ts";

export interface ByKeyOptions {
  /** How many at once, each of another key. */
  concurrency: number;
  /** Nothing is begun after it aborts. */
  signal: AbortSignal;
}

export interface Keyed {
  readonly stream?: string | undefined;
  readonly key?: string | null | undefined;
}

const NOT_TRIED: PublishResult = { status: "unavailable" };

/**
 * Runs `each` for every message and keeps the order of keys: those of one (stream, key) go one after another and end
 * at the first that did not succeed; different keys and messages without a key go side by side. Once one finds the
 * target out, nothing more is begun. What was not tried comes back as unavailable.
 */
export async function publishByKey<M extends Keyed>(
  messages: readonly M[],
  each: (message: M) => Promise<PublishResult>,
  { concurrency, signal }: ByKeyOptions,
): Promise<PublishResult[]> {
  const results = messages.map(() => NOT_TRIED);
  const chains = chainsOf(messages);
  const waiting = chains.values();
  let out = false;

  async function work(): Promise<void> {
    // Shared by all workers: each takes the next chain that nobody has taken.
    for (const chain of waiting) {
      for (const [index, message] of chain) {
        if (out || signal.aborted) return;
        const result = await each(message);
        results[index] = result;
        if (result.status === "unavailable") out = true;
        if (result.status !== "published") break;
      }
    }
  }

  await Promise.all(Array.from({ length: Math.min(concurrency, chains.length) }, work));
  return results;
}

type Chain<M> = [index: number, message: M][];

/** The messages by key, in order of first appearance. */
function chainsOf<M extends Keyed>(messages: readonly M[]): Chain<M>[] {
  const chains: Chain<M>[] = [];
  const byKey = new Map<string, Chain<M>>();
  for (const [index, message] of messages.entries()) {
    const { stream = "", key } = message;
    if (key == null) {
      chains.push([[index, message]]);
      continue;
    }
    const name = `${stream}\0${key}`;
    const chain = byKey.get(name);
    if (chain === undefined) {
      const first: Chain<M> = [[index, message]];
      byKey.set(name, first);
      chains.push(first);
    } else {
      chain.push([index, message]);
    }
  }
  return chains;
}
