import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MongoClient, type Timestamp } from "mongodb";
import { createRelay } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";
import { drain, join, mongoScene, ofKey } from "../../support/mongodb-scene.ts";
import { bySource } from "../../support/by-source.ts";

/** A small oplog, and checkpoints every second: only what they have passed is cut off. */
const SMALL_OPLOG = ["--oplogSize", "2", "--syncdelay", "1"];

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true, args: SMALL_OPLOG }));
}, 240_000);
afterAll(() => slot.stop());

/** Writes until the oplog no longer holds what it held before. */
async function overrunOplog(client: MongoClient): Promise<void> {
  const oplog = client.db("local").collection("oplog.rs");
  const end = async ($natural: 1 | -1): Promise<Timestamp> =>
    (await oplog.findOne({}, { sort: { $natural } }))?.["ts"] as Timestamp;
  const last = await end(-1);
  const filler = client.db().collection("filler");
  const large = "x".repeat(100_000);
  await until(
    async () => {
      await filler.insertMany(Array.from({ length: 50 }, () => ({ large })));
      // What the search stands on may be cut off under it.
      const first = await end(1).catch(() => undefined);
      return first?.greaterThan(last) === true;
    },
    { what: "an oplog that begins later", timeoutMs: 60_000 },
  );
  await filler.drop();
}

describe("a change stream whose place is gone from the oplog", () => {
  it("is answered by a scan, which is told, and nothing is lost, doubled or reordered", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using on = await mongoScene(slot.server.url, { source: "stream" });
    const first = await join(on.store);
    await on.enqueue("a1", "b1");
    expect(await drain(first, 2)).toEqual(["a1", "b1"]);
    await first.leave();
    await on.enqueue("a2", "b2");
    await overrunOplog(on.database.client);
    await on.enqueue("a3");
    const second = await join(on.store);
    const journal = await drain(second, 3);
    expect([ofKey(journal, "a"), ofKey(journal, "b")]).toEqual([[2, 3], [2]]);
    expect(on.events).toMatchObject([
      { type: "stream_started", from: "scan" },
      { type: "stream_lost", windowLost: true },
      { type: "stream_started", from: "scan" },
    ]);
    await on.enqueue("b3");
    expect(await drain(second, 1)).toEqual(["b3"]);
    await second.leave();
  });

  it("may fall behind while the relay is paused: it goes on with a scan", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using on = await mongoScene(slot.server.url, { source: "stream" });
    const session = await join(on.store, { batch: { messages: 2, bytes: 1_000_000 } });
    await on.enqueue("a1");
    expect(await drain(session, 1)).toEqual(["a1"]);
    await on.store.admin.pause("r");
    await session.tend();
    // More than it reads ahead.
    await on.enqueue("a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9");
    await overrunOplog(on.database.client);
    await on.store.admin.resume("r");
    expect(await drain(session, 8)).toEqual(["a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"]);
    await session.leave();
  });
});

describe("a standalone server", () => {
  it("has no change streams, and says what to do", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using server = await startMongodb({ standalone: true });
    const client = new MongoClient(server.url);
    try {
      const store = bySource(createMongoStore({ client, database: "t", transactions: false }), "stream");
      await store.migrator.migrate();
      const relay = createRelay({ store, name: "r", publisher: createMemoryPublisher(), maintenance: false });
      await expect(relay.start()).rejects.toMatchObject({
        code: "invalid_option",
        field: "source",
        fix: expect.stringMatching(/replica set.*polling/) as string,
      });
    } finally {
      await client.close();
    }
  });

  it("is not asked when the option is none, or is given to the store", () => {
    const client = new MongoClient("mongodb://127.0.0.1:1/");
    const store = createMongoStore({ client });
    const publisher = createMemoryPublisher();
    const source = "changeStream" as "stream";
    expect(() => createRelay({ store, name: "r", publisher, source })).toThrow(/source cannot be "changeStream"/);
    const given = { client, source: "stream" };
    expect(() => createMongoStore(given)).toThrow(/source is an option of the relay.*createRelay\(\{ store, source/s);
  });
});
