import { describe, expect, it } from "vitest";
import { type BusinessRow, check, type Fact } from "../../soak/checker.ts";
import type { JournalEntry } from "../../soak/journal.ts";

/** What a fault-free run leaves behind: three messages of a key, one of another. */
const FACTS: readonly Fact[] = [
  { key: "a", n: 1, nonce: "a1" },
  { key: "b", n: 1, nonce: "b1" },
  { key: "a", n: 2, nonce: "a2" },
  { key: "a", n: 3, nonce: "a3" },
];
const business: BusinessRow[] = FACTS.map((fact) => ({ ...fact, kind: "plain" }));
const journal: JournalEntry[] = FACTS.map((fact, i) => ({ ...fact, relay: "relay-0", position: String(i), at: i }));
const effects = [...FACTS];
const FAULTLESS = { lost: 0, neverPublished: 0, doubled: 0, reordered: 0, phantoms: 0 };

const without = <T extends Fact>(facts: readonly T[], nonce: string): T[] =>
  facts.filter((fact) => fact.nonce !== nonce);

describe("the checker of the soak", () => {
  it("is content with a run without faults, repeats included", () => {
    const repeats = [...journal, ...journal];
    expect(check(business, repeats, effects)).toMatchObject({
      ...FAULTLESS,
      committed: 4,
      published: 8,
      repeats: 4,
      effects: 4,
      examples: [],
    });
  });

  it("finds what was never published, and what had no effect", () => {
    expect(check(business, without(journal, "a2"), without(effects, "a2"))).toMatchObject({
      lost: 1,
      neverPublished: 1,
    });
    expect(check(business, journal, without(effects, "a2"))).toMatchObject({ lost: 1, neverPublished: 0 });
  });

  it("finds a doubled effect", () => {
    expect(check(business, journal, [...effects, ...effects.slice(0, 1)])).toMatchObject({ doubled: 1, lost: 0 });
  });

  it("finds a publish and an effect of what was never committed", () => {
    expect(check(without(business, "a3"), journal, without(effects, "a3"))).toMatchObject({ phantoms: 1, lost: 0 });
    expect(check(without(business, "a3"), without(journal, "a3"), effects)).toMatchObject({ phantoms: 1 });
  });

  it("finds first publishes, effects and positions out of order", () => {
    const [first, other, second, third] = journal as [JournalEntry, JournalEntry, JournalEntry, JournalEntry];
    expect(check(business, [first, other, third, second], effects).reordered).toBe(1);
    expect(check(business, journal, [FACTS[0], FACTS[1], FACTS[3], FACTS[2]] as Fact[]).reordered).toBeGreaterThan(0);
    const swapped = [first, other, { ...second, position: "3" }, { ...third, position: "2" }];
    expect(check(business, swapped, effects).reordered).toBe(1);
    // A late repeat is none.
    expect(check(business, [...journal, first], effects)).toMatchObject({ ...FAULTLESS, repeats: 1 });
  });
});
