import { describe, expect, test } from "vitest";
import type { MessageInfo, MessageSearch } from "../../../../src/core/contracts.ts";
import { searchPage, type SearchPart } from "../../../../src/stores/shared/search-page.ts";
import { writePlace } from "../../../../src/stores/shared/search-place.ts";
import { createRandom, type Random } from "../../../soak/random.ts";

/** A page ends after a few of these. */
const LARGE = "A".repeat(5_000_000);

const info = (part: string, n: number, relay: string): MessageInfo => {
  const body = n % 5 === 0 ? LARGE : "{}";
  return { id: `${part}-${n}`, position: BigInt(n), relay, createdAt: new Date(n * 1000), body } as MessageInfo;
};

/** A part with messages of these numbers, of which some are wanted, each with some relays. */
function partOf(
  name: string,
  numbers: readonly number[],
  isWanted: (n: number) => boolean,
  relays: number,
): SearchPart {
  const relay = Array.from({ length: relays }, (_, i) => `r${i}`);
  return {
    name,
    newestFirst: true,
    isRef: (text) => /^\d+$/.test(text),
    refOf: ({ position }) => String(position),
    async next(after, { sight, part }) {
      const left = numbers.filter((n) => after === undefined || n < Number(after));
      const seen = left.slice(0, sight);
      // Half of those that may be wanted turn out not to be when they are read.
      const refs = seen.filter((n) => n % 2 === 0).slice(0, part);
      const isCut = refs.length === part;
      const last = isCut ? refs.at(-1) : seen.at(-1);
      return {
        refs: refs.map(String),
        after: String(last ?? 0),
        seen: seen.length,
        lastAt: last === undefined ? undefined : new Date(last * 1000),
        isLast: !isCut && left.length <= sight,
      };
    },
    async read(refs) {
      return refs.flatMap((ref) => (isWanted(Number(ref)) ? relay.map((one) => info(name, Number(ref), one)) : []));
    },
  };
}

function scene(random: Random) {
  const count = random.int(0, 400);
  const numbers = Array.from({ length: count }, (_, i) => count - i);
  const every = random.int(1, 40);
  const isWanted = (n: number) => n % (2 * every) === 0;
  const relays = random.int(1, 3);
  const parts = ["a", "b", "c"].slice(0, random.int(1, 3)).map((name) => partOf(name, numbers, isWanted, relays));
  const expected = parts.flatMap(({ name }) =>
    numbers
      .filter((n) => n % 2 === 0 && isWanted(n))
      .flatMap((n) => Array.from({ length: relays }, () => `${name}-${n}`)),
  );
  const status = random.chance(0.5) ? { status: "pending" as const } : {};
  return { parts, expected, query: { key: "k", ...status } satisfies MessageSearch, relays };
}

describe("a page of a search", () => {
  test("gives each message once, whatever the budget", async () => {
    for (let seed = 1; seed <= 500; seed++) {
      const random = createRandom(seed);
      const { parts, expected, query, relays } = scene(random);
      const [limit, budget] = [random.int(1, 60), random.int(1, 500)];
      const found: string[] = [];
      let after: string | undefined;
      for (let pages = 0; pages === 0 || (after !== undefined && pages < 10_000); pages++) {
        const page = await searchPage({ ...query, limit, ...(after === undefined ? {} : { after }) }, parts, budget);
        expect(page.messages.length, `seed ${seed}`).toBeLessThanOrEqual(limit * relays);
        found.push(...page.messages.map(({ id }) => id));
        const large = page.messages.filter(({ body }) => body === LARGE).length;
        expect(large, `seed ${seed}`).toBeLessThanOrEqual(3 + relays);
        after = page.next ?? undefined;
      }
      expect(found, `seed ${seed}`).toEqual(expected);
    }
  });

  test("refuses a place of a part that is not there, or of another search", async () => {
    const parts = [partOf("a", [2, 1], () => true, 1)];
    const query: MessageSearch = { key: "k" };
    const of = (place: Parameters<typeof writePlace>[1], search = query) => ({
      ...query,
      after: writePlace(search, place),
    });
    await expect(searchPage(of({ part: "a", after: "2" }), parts, 10)).resolves.toMatchObject({ next: null });
    const refused = { code: "invalid_option", field: "after" };
    await expect(searchPage(of({ part: "b", after: "2" }), parts, 10)).rejects.toMatchObject(refused);
    await expect(searchPage(of({ part: "a", after: "x" }), parts, 10)).rejects.toMatchObject(refused);
    await expect(searchPage(of({ part: "a", after: "2" }, { key: "other" }), parts, 10)).rejects.toMatchObject(refused);
    // The size of a page may change from one to the next.
    const smaller = { ...of({ part: "a", after: null }), limit: 1 };
    expect((await searchPage(smaller, parts, 10)).messages).toHaveLength(1);
  });
});
