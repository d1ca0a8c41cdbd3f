import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Admin, MessagePage, MessageQuery, MessageSearch } from "../../../src/index.ts";
import { laneOf } from "../../../src/core/lane.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb } from "../../harness/index.ts";
import { type MongoDatabase, mongoDatabase } from "../../support/mongodb-database.ts";

/** `TXBOX_TEST_DONE=1000000` for as many as the figures in the docs were taken with. */
const DONE = Number(process.env["TXBOX_TEST_DONE"] ?? 40_000);
const TIES = 120;
const EVERY_MS = 100;
const startedAt = Date.now() - DONE * EVERY_MS;
const timeOf = (n: number) => new Date(startedAt + n * EVERY_MS);

const slot: ServerSlot<MongodbServer> = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped)(`looking for messages among ${DONE} documents`, () => {
  let database: MongoDatabase;
  let admin: Admin;

  const document = (n: number) => ({
    _id: `m-${n}` as never,
    stream: n % 100 === 0 ? "rare" : "orders",
    event_type: n === DONE / 10 ? "only one" : `type ${n % 20}`,
    // A key that was busy until shortly before the end.
    key: n % 10 === 0 && n < DONE - 15_000 ? "busy" : `k${n % 1000}`,
    aggregate_type: "order",
    // One aggregate and one chain had as many.
    aggregate_id: n % 10 === 3 && n < DONE - 15_000 ? "fleet" : `a${n % 3000}`,
    correlation_id: n % 10 === 3 && n < DONE - 15_000 ? "import" : `c${Math.floor(n / 5)}`,
    payload: { n, text: "x".repeat(150) },
    created_at: timeOf(n),
    status: "done",
    published_at: timeOf(n),
    next_retry_at: timeOf(n),
    attempts: 1,
    last_error: null,
    position: timeOf(n).getTime() * 1000,
    lane: laneOf(`k${n % 1000}`),
    size: 200,
    relay: "r",
  });

  beforeAll(async () => {
    database = await mongoDatabase(slot.server.url);
    const store = createMongoStore({ client: database.client });
    await store.migrator.migrate();
    ({ admin } = store);
    const outbox = database.client.db().collection("outbox");
    for (let from = 1; from <= DONE; from += 10_000)
      await outbox.insertMany(Array.from({ length: Math.min(10_000, DONE - from + 1) }, (_, i) => document(from + i)));
    const tie = (n: number) => ({
      ...document(5),
      _id: `tie-${n}` as never,
      key: null,
      stream: "ties",
      correlation_id: "ties",
    });
    await outbox.insertMany(Array.from({ length: TIES }, (_, n) => tie(n)));
    // A key of two streams, whose messages share their positions.
    const twin = (n: number) => ({
      ...document(7 + (n >> 1)),
      _id: `twin-${n}` as never,
      key: "twins",
      stream: `s${n % 2}`,
    });
    await outbox.insertMany(Array.from({ length: 40 }, (_, n) => twin(n)).toReversed());
    const failed = { ...document(77), status: "failed", waits: "parked", attempts: 2, last_error: "no" };
    await outbox.insertOne({
      ...failed,
      _id: "failed" as never,
      key: "f",
      errors: [{ at: new Date(), error: "no" }, null, 5],
    });
    const inbox = Array.from({ length: 30_000 }, (_, n) => ({
      _id: { consumer: `consumer ${n % 20}`, message_id: `m-${n}` } as never,
      status: "processed",
      received_at: timeOf(n),
      processed_at: timeOf(n),
      attempts: 1,
    }));
    await database.client.db().collection("inbox").insertMany(inbox);
  }, 600_000);
  afterAll(() => database?.[Symbol.asyncDispose]());

  const idsOf = ({ messages }: MessagePage): string[] => messages.map(({ id }) => id);

  /** What a call made the server look at. */
  async function costOf(run: () => Promise<unknown>): Promise<{ documents: number; plans: string[] }> {
    const db = database.client.db();
    await db.command({ profile: 0 });
    await db.dropCollection("system.profile").catch(() => false);
    await db.command({ profile: 2 });
    await run();
    await db.command({ profile: 0 });
    const profile = await db
      .collection("system.profile")
      .find({ ns: { $not: /profile/ } })
      .toArray();
    const looks = profile.filter(({ op }) => op === "query" || op === "command" || op === "getmore");
    return {
      documents: looks.reduce((sum, { docsExamined }) => sum + Number(docsExamined ?? 0), 0),
      plans: looks.flatMap(({ planSummary }) => (typeof planSummary === "string" ? [planSummary] : [])),
    };
  }

  it.each<[MessageSearch, number]>([
    [{}, 160],
    [{ id: "m-777" }, 1],
    [{ key: "k77" }, 160],
    [{ key: "busy" }, 160],
    [{ aggregateId: "a77" }, 10 * (DONE / 3000 + 1)],
    [{ aggregateType: "order", aggregateId: "fleet" }, 1100],
    [{ correlationId: "import" }, 160],
    [{ correlationId: "c77" }, 5],
    [{ key: "missing" }, 0],
    [{ type: "type 7" }, 8000],
    [{ type: "only one" }, 10_010],
    [{ status: "published" }, 1100],
    [{ status: "retrying" }, 3],
    [{ status: "scheduled" }, 1],
    [{ status: "dead" }, 1],
    [{ since: timeOf(DONE / 2 - 50), until: timeOf(DONE / 2) }, 200],
    [{ key: "busy", type: "none" }, 10_010],
  ])("a page of %o looks at few documents", async (query, most) => {
    const { documents, plans } = await costOf(() => admin.search(query));
    expect(plans.length).toBeGreaterThan(0);
    expect(plans.filter((plan) => plan.includes("COLLSCAN"))).toEqual([]);
    expect(documents, plans.join(", ")).toBeLessThanOrEqual(most);
  });

  it.each<[MessageQuery, number]>([
    [{ key: "k77" }, 200],
    [{ correlationId: "c77" }, 20],
    [{ aggregateId: "a77" }, 40],
    [{ id: "m-777" }, 5],
    [{ key: "missing" }, 0],
    [{ correlationId: "nothing" }, 0],
  ])("the order of positions tempts no look-up of %o", async (query, most) => {
    const { documents, plans } = await costOf(() => admin.find(query));
    expect(documents, plans.join(", ")).toBeLessThanOrEqual(most);
  });

  it("finds the right ones", async () => {
    expect(idsOf(await admin.search({ correlationId: "c77" }))).toEqual([389, 388, 387, 386, 385].map((n) => `m-${n}`));
    const half = DONE / 2;
    const within = await admin.search({ since: timeOf(half - 5), until: timeOf(half) });
    expect(idsOf(within)).toEqual([1, 2, 3, 4, 5].map((n) => `m-${half - n}`));
    const last = DONE - 15_010;
    expect(idsOf(await admin.search({ key: "busy", limit: 2 }))).toEqual([`m-${last}`, `m-${last - 10}`]);
    for (const query of [{ aggregateId: "fleet" }, { correlationId: "import" }]) {
      const first = await admin.search({ ...query, limit: 2 });
      const second = await admin.search({ ...query, limit: 1, after: first.next! });
      expect([...idsOf(first), ...idsOf(second)]).toEqual([3, -7, -17].map((n) => `m-${last + n}`));
    }
    const [failed] = (await admin.search({ status: "retrying" })).messages;
    expect([failed?.id, failed?.errors.length]).toEqual(["failed", 1]);
    expect((await admin.consumers()).map(({ failed: count }) => count)).toEqual(Array.from({ length: 20 }, () => null));
    const receipts = await admin.receiptsOf([{ id: "m-21", createdAt: new Date() }]);
    expect(receipts).toMatchObject([{ consumer: "consumer 1", status: "processed" }]);
  });

  it("comes to what is rare page by page, and says how far it looked", async () => {
    const back: number[] = [];
    let page = await admin.search({ type: "only one" });
    while (page.messages.length === 0 && page.next !== null) {
      back.push(page.lookedBackTo?.getTime() ?? Number.NaN);
      page = await admin.search({ type: "only one", after: page.next });
    }
    expect(idsOf(page)).toEqual([`m-${DONE / 10}`]);
    expect(back.every((time, i) => time < (back[i - 1] ?? Number.POSITIVE_INFINITY))).toBe(true);
    const pages = back.length + 1;
    expect(pages).toBe(Math.ceil((DONE * 0.9) / 5000));
  });

  it.each([1, 7, 50])("tells messages of one position apart, by pages of %i", async (limit) => {
    for (const [query, count] of [
      [{ correlationId: "ties" }, TIES],
      [{ stream: "ties", until: timeOf(1000) }, TIES],
      [{ key: "twins" }, 40],
      [{ key: "twins", status: "published" }, 40],
    ] as [MessageSearch, number][]) {
      const found: string[] = [];
      for (let after: string | undefined; ;) {
        const page = await admin.search({ ...query, limit, ...(after === undefined ? {} : { after }) });
        found.push(...idsOf(page));
        if (page.next === null) break;
        after = page.next;
      }
      expect([found.length, new Set(found).size]).toEqual([count, count]);
    }
  });

  it.each([
    { ties: 30, limit: 10 },
    { ties: 200, limit: 10 },
    { ties: 7000, limit: 1000 },
  ])(
    "a key with $ties messages at one position, among others: none is missed, and none is there twice",
    async ({ ties, limit }) => {
      const key = `tied-${ties}`;
      // In no order of their ids, and in front of and behind others of the key.
      const tied = Array.from({ length: ties }, (_, n) => ({
        ...document(200),
        _id: `${(n * 7919) % 10_007}-${key}` as never,
        key,
        stream: `s${n}`,
        event_type: n % 3 === 0 ? "third" : "other",
      }));
      const around = [100, 101, 102, 201, 202].map((n) => ({ ...document(n), _id: `${key}-${n}` as never, key }));
      const outbox = database.client.db().collection("outbox");
      await outbox.insertMany([...around.slice(0, 3), ...tied, ...around.slice(3)]);
      for (const query of [{ key }, { key, type: "third" }, { key, status: "published" }] as MessageSearch[]) {
        const found: string[] = [];
        for (let after: string | undefined; ;) {
          const page = await admin.search({ ...query, limit, ...(after === undefined ? {} : { after }) });
          found.push(...idsOf(page));
          if (page.next === null) break;
          after = page.next;
        }
        const wanted = [...around, ...tied].filter(
          ({ event_type }) => query.type === undefined || event_type === query.type,
        );
        expect(found).toHaveLength(wanted.length);
        expect(found.toSorted()).toEqual(wanted.map(({ _id }) => String(_id)).toSorted());
      }
    },
  );

  it("a database of 0.4 is told that it is outdated, and gets the index", async () => {
    const store = createMongoStore({ client: database.client });
    await database.client.db().collection("outbox").dropIndex("txbox_newest");
    await expect(store.migrator.check()).rejects.toMatchObject({ code: "schema_outdated" });
    expect((await store.migrator.migrate()).map(({ name }) => name)).toEqual(["mend_indexes"]);
    expect((await admin.search({ limit: 1 })).messages).toHaveLength(1);
  });
});
