/** Runs every entry once per round, so that noise from outside hits all alike; what each gave, round by round. */
export async function interleave<K extends string>(
  rounds: number,
  entries: Record<K, () => Promise<number>>,
): Promise<Record<K, number[]>> {
  const names = Object.keys(entries) as K[];
  const results = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>;
  for (let round = 0; round < rounds; round += 1) {
    for (const name of names) results[name].push(await entries[name]());
  }
  return results;
}

/** A figure that rests on the wrong number of messages is worth nothing. */
export function mustEqual(what: string, found: number, expected: number): void {
  if (found !== expected) throw new Error(`${what}: ${found} instead of ${expected}`);
}
