import { afterAll, describe, expect, it } from "vitest";
import { laneOf } from "../../../src/core/lane.ts";
import { createDatabase, serverOrSkip, startPostgres } from "../../harness/index.ts";
import { hasPostgres, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { createRandom, type Random } from "../../soak/random.ts";
import { openDriver, storeParts, type DriverName } from "../../support/postgres-drivers.ts";

const slot = await serverOrSkip("PostgreSQL of the system", () => startPostgres({ binaries: "path", owned: true }));
afterAll(() => slot.stop());

const SERVERS: { server: string; driver: DriverName; skipped: boolean; url: () => string; keys: number }[] = [
  {
    server: "PostgreSQL of the packages",
    driver: "node-postgres",
    skipped: !hasPostgres(),
    url: sharedPostgresUrl,
    keys: 100_000,
  },
  {
    server: "PostgreSQL of the system",
    driver: "node-postgres",
    skipped: slot.skipped,
    url: () => slot.server.url,
    keys: 100_000,
  },
  { server: "PGlite", driver: "PGlite", skipped: !hasPostgres(), url: sharedPostgresUrl, keys: 20_000 },
];

/** The first and the last character of each length in UTF-8, and those around the surrogates. */
const EDGES = [0x1, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xfffd, 0xffff, 0x10000, 0x10ffff].map((code) =>
  String.fromCodePoint(code),
);

describe.each(SERVERS)("lanes in SQL, $server", ({ driver: name, skipped, url, keys: count }) => {
  it.skipIf(skipped)("are those of the outbox for random keys", { timeout: 120_000 }, async () => {
    await using base = await createDatabase(url());
    const driver = openDriver(name, base.url, 1);
    const { database, migrator, names } = storeParts(driver);
    await migrator.migrate();
    const seed = Date.now() % 2 ** 31;
    const random = createRandom(seed);
    const keys = [...EDGES, ...EDGES.map((edge) => `a${edge}b${edge}`), "\u0301e\u0301", "👩‍👩‍👧", "x".repeat(1024)];
    while (keys.length < count) keys.push(randomKey(random));
    const wrong: unknown[] = [];
    const lanes = new Set<number>();
    for (let from = 0; from < keys.length; from += 5000) {
      const some = keys.slice(from, from + 5000);
      const rows = await database.query(
        `select ${names.lane_of}(value) from json_array_elements_text($1::text::json) with ordinality as k(value, n) order by n`,
        [JSON.stringify(some)],
      );
      expect(rows.length).toBe(some.length);
      for (const [i, [lane]] of rows.entries()) {
        lanes.add(Number(lane));
        if (Number(lane) !== laneOf(some[i]!)) wrong.push({ key: some[i], sql: lane, outbox: laneOf(some[i]!) });
      }
    }
    expect(wrong, `seed ${seed}`).toEqual([]);
    expect(lanes.size).toBe(64);
    await driver.close();
  });
});

/** Up to 60 characters, each from a plane that is chosen for it or for the whole key. */
function randomKey(random: Random): string {
  const ranges = [
    [0x20, 0x7e],
    [0x1, 0x7ff],
    [0x800, 0xd7ff],
    [0xe000, 0xffff],
    [0x10000, 0x10ffff],
    [0x1f300, 0x1faff],
  ] as const;
  const own = random.int(0, ranges.length + 1);
  let key = "";
  for (let left = random.int(1, 60); left > 0; left--) {
    const [low, high] = ranges[own] ?? random.pick(ranges);
    key += String.fromCodePoint(random.int(low, high));
  }
  return key;
}
