import { setTimeout as sleep } from "node:timers/promises";
import { type ClientSession, MongoClient } from "mongodb";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createInbox, createOutbox, createRelay, PermanentError, publishEach } from "../../../src/index.ts";
import { createMongoStore, type WakeUpEvent, writeResult } from "../../../src/stores/mongodb/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";
import { type MongoDatabase, mongoDatabase } from "../../support/mongodb-database.ts";

let slot: ServerSlot<MongodbServer>;
beforeAll(async () => {
  slot = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
}, 240_000);
afterAll(() => slot.stop());

/** As another process does it: through a store of its own. */
async function enqueue({ client }: MongoDatabase, n: number): Promise<void> {
  const outbox = createOutbox({ store: createMongoStore({ client }) });
  await client.withSession((session) =>
    session.withTransaction(() => outbox.enqueue(session, { stream: "s", type: "t", key: "k", payload: n })),
  );
}

describe("the change stream", () => {
  it("wakes a relay that would look in an hour, and a lost one leaves it polling", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using database = await mongoDatabase(slot.server.url);
    const impatient = new MongoClient(database.url, { serverSelectionTimeoutMS: 1000 });
    const store = createMongoStore({ client: impatient });
    await store.migrator.migrate();
    const events: WakeUpEvent[] = [];
    const wakeUp = store.wakeUp({ onEvent: (event) => events.push(event) });
    const publisher = createMemoryPublisher();
    const relay = createRelay({ store, name: "r", publisher, maintenance: false, maxPollMs: 60_000, leaseMs: 5000 });
    await relay.start();
    const published = (count: number, timeoutMs: number) =>
      until(() => publisher.published.length >= count, { what: `message ${count}`, timeoutMs });
    // The stream is open when it has seen something.
    await until(
      async () => {
        await enqueue(database, 0);
        await sleep(300);
        return publisher.published.length > 0;
      },
      { what: "the first wake-up", timeoutMs: 60_000 },
    );
    // Looks follow a message ever more slowly, the last ones after four and after eight seconds: in between, it sleeps.
    await sleep(5000);
    const before = publisher.published.length;
    await enqueue(database, 1);
    await published(before + 1, 2000);
    await slot.server.kill();
    // The driver takes the stream up again by itself, unless it finds no server for a while.
    await until(() => events.some(({ type }) => type === "wake_up_lost"), { what: "the loss", timeoutMs: 60_000 });
    await slot.server.restart();
    await enqueue(database, 2);
    await published(before + 2, 40_000);
    await until(() => events.at(-1)?.type === "wake_up_started" && events.length > 2, {
      what: "another stream",
      timeoutMs: 40_000,
    });
    await relay.stop();
    await wakeUp.close();
    await impatient.close();
    expect(events[0]).toEqual({ type: "wake_up_started" });
    expect(events[1]).toMatchObject({ type: "wake_up_lost", again: true });
  });

  it("says that it ended, and is opened again", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using database = await mongoDatabase(slot.server.url);
    const store = createMongoStore({ client: database.client });
    await store.migrator.migrate();
    const events: WakeUpEvent[] = [];
    const publisher = createMemoryPublisher();
    const relay = createRelay({ store, name: "r", publisher, maintenance: false, maxPollMs: 200 });
    await relay.start();
    const wakeUp = store.wakeUp({ onEvent: (event) => events.push(event) });
    await sleep(500);
    // Dropping the collection invalidates the stream: it cannot be resumed.
    await database.client.db().collection("outbox").drop();
    await store.migrator.migrate();
    await until(() => events.some(({ type }) => type === "wake_up_lost"), { what: "the end of the stream" });
    await enqueue(database, 1);
    await until(() => publisher.published.length === 1, { what: "delivery by polling" });
    await until(() => events.filter(({ type }) => type === "wake_up_started").length > 1, { what: "another stream" });
    expect(events.find(({ type }) => type === "wake_up_lost")).toMatchObject({ again: true });
    await wakeUp.close();
    await relay.stop();
  });

  it("is not there on a standalone server, which is said once", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using server = await startMongodb({ standalone: true });
    const client = new MongoClient(server.url);
    const events: WakeUpEvent[] = [];
    const store = createMongoStore({ client, database: "t", transactions: false });
    const wakeUp = store.wakeUp({ onEvent: (event) => events.push(event) });
    await until(() => events.some(({ type }) => type === "wake_up_lost"), { what: "the end of the stream" });
    await sleep(200);
    await wakeUp.close();
    expect(events.filter(({ type }) => type === "wake_up_lost")).toMatchObject([{ again: false }]);
    await client.close();
  });
});

describe("effects", () => {
  interface Snapshot {
    _id: string;
    revision: number;
    html: string;
  }

  it("of a handler and its receipt commit together in its session", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using database = await mongoDatabase(slot.server.url);
    const store = createMongoStore({ client: database.client });
    await store.migrator.migrate();
    const paid = database.client.db().collection<{ order: string }>("paid");
    await database.client.db().createCollection("paid");
    let failing = true;
    const inbox = createInbox<{ order_created: string }, ClientSession>({ store, consumer: "payments" });
    inbox.on("order_created", async (session, message) => {
      await paid.insertOne({ order: message.payload }, { session });
      if (failing) throw new Error("not yet");
    });
    const message = { id: "m-1", type: "order_created", body: JSON.stringify("o-1"), headers: {} };
    await expect(inbox.handle(message)).rejects.toThrow("not yet");
    expect(await paid.countDocuments()).toBe(0);
    failing = false;
    const results = await Promise.all([1, 2, 3].map(() => inbox.handle(message)));
    expect(results.toSorted()).toEqual(["duplicate", "duplicate", "processed"]);
    expect(await paid.countDocuments()).toBe(1);
  });

  it("of stored messages happen once for each consumer, beside the sender's own messages", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using database = await mongoDatabase(slot.server.url);
    const store = createMongoStore({ client: database.client });
    await store.migrator.migrate();
    const effects = database.client.db().collection<{ by: string; n: unknown }>("effects");
    await database.client.db().createCollection("effects");
    const consumers = ["one", "two"].map((consumer) => {
      const inbox = createInbox<{ t: number }, ClientSession>({ store, consumer, mode: "stored" });
      inbox.on("t", async (session, { payload }) => {
        await effects.insertOne({ by: consumer, n: payload }, { session });
        if (payload === 2) throw new PermanentError("no");
      });
      return { consumer, inbox };
    });
    for (let n = 1; n <= 3; n++) await enqueue(database, n);
    const deliver = publishEach(async (message) => {
      for (const { inbox } of consumers) {
        await inbox.handle(message);
        expect(await inbox.handle(message)).toBe("duplicate");
      }
    });
    await createRelay({ store, name: "to-all", publisher: deliver, maintenance: false }).drainOnce();
    for (const { consumer, inbox } of consumers) {
      const local = { store, name: `${consumer}-local`, streams: [`inbox.${consumer}`], maintenance: false };
      await createRelay({ ...local, publisher: inbox.storedPublisher() }).drainOnce();
    }
    const done = await effects.find().sort({ by: 1, n: 1 }).toArray();
    expect(done.map(({ by, n }) => `${by} ${String(n)}`)).toEqual(["one 1", "one 3", "two 1", "two 3"]);
    const dead = await store.admin.dead({});
    expect(dead.map(({ relay }) => relay).toSorted()).toEqual(["one-local", "two-local"]);
    const [letter] = dead;
    const found = await store.admin.find({ id: letter?.id ?? "" });
    expect(found.map(({ stream, status }) => `${stream} ${status}`).toSorted()).toEqual([
      "inbox.one dead",
      "inbox.two dead",
      "s published",
    ]);
    expect(await store.admin.requeue({ id: letter?.id ?? "", relay: "one-local" })).toBe(1);
  });

  it("under a unique key are not changed by a repeat, nor by what is older", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await using database = await mongoDatabase(slot.server.url);
    const snapshots = database.client.db().collection<Snapshot>("snapshots");
    const write = (revision: number, html: string) =>
      writeResult(snapshots, { _id: `page:${revision}`, revision, html });
    expect([await write(1, "first"), await write(1, "again")]).toEqual([true, false]);
    const heads = database.client.db().collection<Snapshot>("heads");
    const head = (revision: number) =>
      writeResult(heads, { _id: "page", revision, html: `r${revision}` }, { newerBy: "revision" });
    expect([await head(2), await head(1), await head(2), await head(3)]).toEqual([true, false, false, true]);
    const racing = await Promise.all(Array.from({ length: 20 }, (_, i) => head(4 + (i % 5))));
    expect(racing.some(Boolean)).toBe(true);
    expect(await heads.findOne({ _id: "page" })).toEqual({ _id: "page", revision: 8, html: "r8" });
    expect(await snapshots.findOne({ _id: "page:1" })).toMatchObject({ html: "first" });
  });
});
