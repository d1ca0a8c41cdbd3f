export interface Rounds {
  count: number;
  /** No further round begins when it would go beyond this; one there always is. */
  budgetMs: number;
}

/** Runs every entry once per round, so that noise from outside hits all alike; what each gave, round by round. */
export async function interleave<K extends string>(
  { count, budgetMs }: Rounds,
  entries: Record<K, () => Promise<number>>,
): Promise<Record<K, number[]>> {
  const names = Object.keys(entries) as K[];
  const results = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>;
  const started = performance.now();
  for (let round = 0; round < count; round += 1) {
    const elapsed = performance.now() - started;
    if (round > 0 && elapsed + elapsed / round > budgetMs) break;
    for (const name of names) results[name].push(await entries[name]());
  }
  return results;
}

/** A figure that rests on the wrong number of messages is worth nothing. */
export function mustEqual(what: string, found: number, expected: number): void {
  if (found !== expected) throw new Error(`${what}: ${found} instead of ${expected}`);
}
