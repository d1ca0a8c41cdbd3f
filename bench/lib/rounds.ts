export interface Rounds {
  count: number;
  /** No further round begins when it would probably go beyond this; one there always is. */
  budgetMs: number;
}

export interface Entry {
  /** One measurement. */
  run: () => Promise<number>;
  /** Takes part only in every so many rounds, because it takes long. */
  every?: number;
}

/** Runs the entries in turn, round after round, so that noise from outside hits all alike; what each gave. */
export async function interleave<K extends string>(
  { count, budgetMs }: Rounds,
  entries: Record<K, Entry>,
): Promise<Record<K, number[]>> {
  const names = Object.keys(entries) as K[];
  const results = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>;
  const started = performance.now();
  let longest = 0;
  for (let round = 0; round < count; round += 1) {
    const before = performance.now() - started;
    if (round > 0 && before + longest > budgetMs) break;
    for (const name of names) {
      const { run, every = 1 } = entries[name];
      if (round % every === 0) results[name].push(await run());
    }
    longest = Math.max(longest, performance.now() - started - before);
  }
  return results;
}

/** A figure that rests on the wrong number of messages is worth nothing. */
export function mustEqual(what: string, found: number, expected: number): void {
  if (found !== expected) throw new Error(`${what}: ${found} instead of ${expected}`);
}
