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
  const took = new Map<K, number>();
  const started = performance.now();
  for (let round = 0; round < count; round += 1) {
    const those = names.filter((name) => round % (entries[name].every ?? 1) === 0);
    const expected = those.reduce((sum, name) => sum + (took.get(name) ?? 0), 0);
    if (round > 0 && performance.now() - started + expected > budgetMs) break;
    for (const name of those) {
      const before = performance.now();
      results[name].push(await entries[name].run());
      took.set(name, performance.now() - before);
    }
  }
  return results;
}

/** A figure that rests on the wrong number of messages is worth nothing. */
export function mustEqual(what: string, found: number, expected: number): void {
  if (found !== expected) throw new Error(`${what}: ${found} instead of ${expected}`);
}
