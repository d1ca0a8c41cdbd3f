import type { JournalEntry } from "./journal.ts";

export interface Fact {
  key: string;
  n: number;
  nonce: string;
}

export interface BusinessRow extends Fact {
  kind: string;
}

export interface Verdict {
  committed: number;
  /** Publishes in the journal, repeats included. */
  published: number;
  /** Publishes of a message that had been published before. */
  repeats: number;
  effects: number;
  lost: number;
  /** Committed and never in the journal: a part of `lost`. */
  neverPublished: number;
  doubled: number;
  reordered: number;
  phantoms: number;
  examples: string[];
}

const MAX_EXAMPLES = 20;

/** Compares what was committed with what was published and what came of it. Knows nothing of txbox's tables. */
export function check(
  business: readonly BusinessRow[],
  journal: readonly JournalEntry[],
  effects: readonly Fact[],
): Verdict {
  const committed = new Map(business.map((row) => [row.nonce, row]));
  const examples: string[] = [];
  const example = (text: string): void => void (examples.length < MAX_EXAMPLES && examples.push(text));

  const published = new Set<string>();
  const firsts: JournalEntry[] = [];
  for (const entry of journal) {
    if (published.has(entry.nonce)) continue;
    published.add(entry.nonce);
    firsts.push(entry);
  }
  let phantoms = 0;
  for (const entry of firsts) {
    if (committed.has(entry.nonce)) continue;
    phantoms++;
    example(`phantom: ${describe(entry)} was published at position ${entry.position} and never committed`);
  }

  const times = new Map<string, number>();
  for (const { nonce } of effects) times.set(nonce, (times.get(nonce) ?? 0) + 1);
  let doubled = 0;
  for (const [nonce, count] of times) {
    if (!committed.has(nonce)) {
      phantoms++;
      example(`phantom: effect of ${nonce}, which was never committed`);
    }
    doubled += count - 1;
    if (count > 1) example(`doubled: ${count} effects of ${nonce}`);
  }

  let lost = 0;
  let neverPublished = 0;
  for (const row of business) {
    if (times.has(row.nonce)) continue;
    lost++;
    if (!published.has(row.nonce)) neverPublished++;
    example(
      `lost: ${describe(row)} (${row.kind}), ${published.has(row.nonce) ? "published but without effect" : "never published"}`,
    );
  }

  const known = (fact: Fact): boolean => committed.has(fact.nonce);
  const breaks = [
    ...orderBreaks("published", firsts.filter(known)),
    ...orderBreaks("effect", effects.filter(known)),
    ...orderBreaks(
      "position",
      [...firsts].sort((a, b) => Number(BigInt(a.position) - BigInt(b.position))).filter((fact) => known(fact)),
    ),
  ];
  for (const text of breaks) example(text);
  return {
    committed: business.length,
    published: journal.length,
    repeats: journal.length - firsts.length,
    effects: effects.length,
    lost,
    neverPublished,
    doubled,
    reordered: breaks.length,
    phantoms,
    examples,
  };
}

function orderBreaks(what: string, facts: readonly (Fact & { position?: string; relay?: string })[]): string[] {
  const last = new Map<string, Fact & { position?: string; relay?: string }>();
  const breaks: string[] = [];
  for (const fact of facts) {
    const before = last.get(fact.key);
    if (before === undefined || before.n < fact.n) last.set(fact.key, fact);
    else breaks.push(`reordered (${what}): ${describe(fact)} after ${describe(before)}`);
  }
  return breaks;
}

function describe({ key, n, position, relay }: { key: string; n: number; position?: string; relay?: string }): string {
  return `${key}#${n}${position === undefined ? "" : ` at ${position}`}${relay === undefined ? "" : ` by ${relay}`}`;
}
