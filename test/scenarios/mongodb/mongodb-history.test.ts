import { afterAll, beforeAll, expect, it } from "vitest";
import type { BlockedPlace } from "../../../src/index.ts";
import { laneOf } from "../../../src/core/lane.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb } from "../../harness/index.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";

const KEYS = Number(process.env["TXBOX_TEST_KEYS"] ?? 20_000);

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
}, 240_000);
afterAll(() => slot.stop());

it("a database of 0.3 is told that it is outdated, and upgraded", async ({ skip }) => {
  skip(slot.skipped, slot.reason);
  await using database = await mongoDatabase(slot.server.url);
  const store = createMongoStore({ client: database.client });
  await store.migrator.migrate();
  await database.client.db().dropCollection("outbox_samples");
  await database.client.db().collection("outbox_dead").dropIndex("txbox_holding");
  await expect(store.migrator.check()).rejects.toMatchObject({ code: "schema_outdated" });
  expect((await store.migrator.migrate()).map(({ name }) => name)).toEqual(["mend_indexes"]);
  await store.migrator.check();
  const indexes = await database.client.db().collection("outbox_samples").indexes();
  expect(indexes.find(({ name }) => name === "txbox_expire")).toMatchObject({ expireAfterSeconds: 86_400 });
});

it("the option archive is refused with the reason", async ({ skip }) => {
  skip(slot.skipped, slot.reason);
  await using database = await mongoDatabase(slot.server.url);
  const options = { client: database.client, archive: { directory: "x" } };
  expect(() => createMongoStore(options)).toThrow(/deletes by its TTL index, so there is no archive/);
});

it(`a page of ${KEYS} blocked keys costs what is on it`, { timeout: 300_000 }, async ({ skip }) => {
  skip(slot.skipped, slot.reason);
  await using database = await mongoDatabase(slot.server.url);
  const store = createMongoStore({ client: database.client });
  await store.migrator.migrate();
  const [at, db] = [new Date(), database.client.db()];
  const message = (n: number, front: boolean) => ({
    _id: `${front ? "front" : "behind"}-${n}` as never,
    stream: "s",
    event_type: "t",
    key: `k${n}`,
    payload: {},
    created_at: at,
    next_retry_at: at,
    attempts: front ? 3 : 0,
    last_error: front ? "refused" : null,
    position: front ? n : n + KEYS,
    lane: laneOf(`k${n}`),
    relay: "r",
  });
  for (let from = 0; from < KEYS; from += 5000) {
    const numbers = Array.from({ length: Math.min(5000, KEYS - from) }, (_, i) => from + i);
    const [failed, held] = [numbers.filter((n) => n % 2 === 1), numbers.filter((n) => n % 2 === 0)];
    const waits = { waits: "parked", status: "failed", errors: [{ at, error: "refused" }] };
    await db.collection("outbox").insertMany(failed.map((n) => ({ ...message(n, true), ...waits })));
    await db
      .collection("outbox")
      .insertMany(numbers.map((n) => ({ ...message(n, false), waits: "parked", status: "new" })));
    const dead = { state: "dead", blocks: true, command: null, died_at: at, errors: [] };
    await db.collection("outbox_dead").insertMany(held.map((n) => ({ ...message(n, true), ...dead })));
  }
  const startedAt = performance.now();
  let [found, held, after]: [Set<string>, number, BlockedPlace | undefined] = [new Set(), 0, undefined];
  let slowest = 0;
  for (let last = false; !last;) {
    const pageAt = performance.now();
    const page = await store.admin.blocked({ limit: 500, ...(after === undefined ? {} : { after }) });
    slowest = Math.max(slowest, performance.now() - pageAt);
    for (const { key, waiting, heldByDead } of page) {
      expect(waiting).toBe(1);
      found.add(key ?? "");
      if (heldByDead) held++;
    }
    [last, after] = [page.length < 500, page.at(-1)];
  }
  const figures = `all ${KEYS} keys ${(performance.now() - startedAt).toFixed(0)} ms, slowest page of 500 ${slowest.toFixed(0)} ms`;
  process.stdout.write(`${figures}\n`);
  expect([found.size, held]).toEqual([KEYS, KEYS / 2]);
  expect(slowest, figures).toBeLessThan(2000);
});
