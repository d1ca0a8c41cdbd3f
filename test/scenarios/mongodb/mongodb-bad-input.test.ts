import { type Collection, MongoClient } from "mongodb";
import mongoose from "mongoose";
import { afterAll, describe, expect, it } from "vitest";
import { createInbox, createOutbox, createRelay, type NewMessage, type Outbox } from "../../../src/index.ts";
import {
  createMongoStore,
  type MongoStore,
  type MongoTx,
  WITHOUT_TRANSACTION,
} from "../../../src/stores/mongodb/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { type MongodbServer, serverOrSkip, type ServerSlot, startMongodb, until } from "../../harness/index.ts";
import { type MongoDatabase, mongoDatabase } from "../../support/mongodb-database.ts";
import { bySource } from "../../support/by-source.ts";

const replicaSet = await serverOrSkip("MongoDB", () => startMongodb({ owned: true }));
const standalone = await serverOrSkip("MongoDB", () => startMongodb({ standalone: true }));
afterAll(async () => {
  await replicaSet.stop();
  await standalone.stop();
});

interface Scene extends AsyncDisposable {
  readonly database: MongoDatabase;
  readonly client: MongoClient;
  readonly store: MongoStore;
  readonly outbox: Outbox<Record<string, unknown>, MongoTx>;
  readonly documents: Collection<{ _id: string; [field: string]: unknown }>;
  /** In one transaction. */
  enqueue(...messages: NewMessage[]): Promise<void>;
  /** What a relay publishes now. */
  published(): Promise<unknown[]>;
}

async function scene(slot: ServerSlot<MongodbServer> = replicaSet, transactions = true): Promise<Scene> {
  const database = await mongoDatabase(slot.server.url);
  const { client } = database;
  const store = createMongoStore({ client, transactions });
  await store.migrator.migrate();
  const outbox = createOutbox({ store });
  return {
    database,
    client,
    store,
    outbox,
    documents: client.db().collection("outbox"),
    async enqueue(...messages) {
      await client.withSession((session) => session.withTransaction(() => outbox.enqueue(session, messages)));
    },
    async published() {
      const publisher = createMemoryPublisher();
      await createRelay({ store, name: "r", publisher, maintenance: false }).drainOnce();
      return publisher.published.map(({ body }) => (typeof body === "string" ? (JSON.parse(body) as unknown) : body));
    },
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

const message = (n: unknown, more: object = {}) => ({ stream: "s", type: "t", key: "k", payload: n, ...more });

describe.skipIf(standalone.skipped)("a standalone server", () => {
  it("says what to do when transactions are asked for", async () => {
    await using on = await scene(standalone);
    const wanted = { code: "no_transaction", fix: expect.stringMatching(/replica set.*transactions: false/) as string };
    const enqueueing = on.client.withSession((session) =>
      session.withTransaction(() => on.outbox.enqueue(session, message(1))),
    );
    await expect(enqueueing).rejects.toMatchObject(wanted);
    const inbox = createInbox({ store: on.store, consumer: "c" }).on("t", async () => undefined);
    await expect(inbox.handle({ id: "x", type: "t", body: "1", headers: {} })).rejects.toMatchObject(wanted);
  });

  it("works without them: the message after the data, with an id made of it", async () => {
    await using on = await scene(standalone, false);
    const first = await on.outbox.enqueue(WITHOUT_TRANSACTION, message(1, { id: "p:1" }));
    const again = await on.outbox.enqueue(WITHOUT_TRANSACTION, [message(1, { id: "p:1" }), message(2, { id: "p:2" })]);
    expect([first, ...again].map(({ duplicate }) => duplicate)).toEqual([false, true, false]);
    await expect(on.outbox.enqueue(WITHOUT_TRANSACTION, message(3))).rejects.toMatchObject({
      code: "invalid_message",
      field: "id",
    });
    const session = on.client.startSession();
    await expect(on.outbox.enqueue(session, message(4, { id: "p:4" }))).rejects.toMatchObject({
      code: "no_transaction",
    });
    await session.endSession();
    expect(await on.published()).toEqual([1, 2]);
  });

  it("enqueues an id once though many do it at the same time", async () => {
    await using on = await scene(standalone, false);
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        on.outbox.enqueue(WITHOUT_TRANSACTION, message(i, { id: "same", key: `k${i}` })),
      ),
    );
    expect(all.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
    expect(await on.published()).toHaveLength(1);
  });
});

describe.skipIf(replicaSet.skipped)("a transaction that is none", () => {
  it("is refused, and nothing is written", async () => {
    await using on = await scene();
    const session = on.client.startSession();
    const refused = { code: "no_transaction", field: "tx" };
    await expect(on.outbox.enqueue(session, message(1))).rejects.toMatchObject(refused);
    await expect(on.outbox.enqueue(WITHOUT_TRANSACTION, message(1))).rejects.toMatchObject(refused);
    await expect(on.outbox.enqueue({} as MongoTx, message(1))).rejects.toMatchObject(refused);
    await session.endSession();
    expect(await on.documents.countDocuments()).toBe(0);
  });

  it("joins the session of mongoose", async () => {
    await using on = await scene();
    const connection = await mongoose.createConnection(on.database.url).asPromise();
    try {
      const Order = connection.model("Order", new mongoose.Schema({ total: Number }));
      await Order.createCollection();
      const store = createMongoStore({ client: connection.getClient() });
      const outbox = createOutbox({ store });
      await connection.transaction(async (session) => {
        await Order.create([{ total: 90 }], { session });
        await outbox.enqueue(session, message("kept"));
      });
      const failing = connection.transaction(async (session) => {
        await outbox.enqueue(session, message("undone"));
        throw new Error("no");
      });
      await expect(failing).rejects.toThrow("no");
      expect(await Order.countDocuments()).toBe(1);
    } finally {
      await connection.close();
    }
    expect(await on.published()).toEqual(["kept"]);
  });
});

describe.skipIf(replicaSet.skipped)("payloads", () => {
  const values: [name: string, payload: unknown, stored: "object" | "string"][] = [
    ["an object", { a: { b: [1, null, "ü"] }, when: "2026-01-01" }, "object"],
    ["names that mean something to MongoDB", { $set: { "a.b": 1 }, $ref: "x", $id: 1 }, "string"],
    ["the name of a prototype", JSON.parse('{"__proto__": {"x": 1}}') as unknown, "string"],
    ["very deep nesting", JSON.parse(`${"[".repeat(150)}1${"]".repeat(150)}`) as unknown, "string"],
    [
      "large and small numbers",
      { big: 9_007_199_254_740_991, small: 5e-324, minus: -0.5, int: 2_147_483_648 },
      "object",
    ],
    ["keys that are numbers", { 2: "b", 1: "a", x: "c" }, "object"],
  ];

  it.each(values)("%s comes out as it went in", async (_, payload, stored) => {
    await using on = await scene();
    await on.enqueue(message(payload));
    expect(typeof (await on.documents.findOne())?.["payload"]).toBe(stored);
    expect(await on.published()).toEqual([payload]);
  });

  it("text, null, a number and bytes come out as they went in", async () => {
    await using on = await scene();
    const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
    await on.enqueue(message("a text"), message(null), message(42), message(false), message(bytes));
    const [text, nothing, number, no, blob] = await on.published();
    expect([text, nothing, number, no]).toEqual(["a text", null, 42, false]);
    expect(Buffer.compare(Buffer.from(blob as Uint8Array), Buffer.from(bytes))).toBe(0);
  });

  it("that another program wrote into the collection are made into JSON", async () => {
    await using on = await scene();
    await on.enqueue(message("original"));
    const when = new Date("2026-01-01T00:00:00Z");
    await on.documents.updateOne({}, { $set: { payload: { when, text: "edited" } } });
    expect(await on.published()).toEqual([{ when: when.toISOString(), text: "edited" }]);
  });
});

describe.skipIf(replicaSet.skipped)("documents edited by hand", () => {
  const edits: [name: string, edit: Record<string, unknown>, reason: RegExp][] = [
    ["stream is a number", { stream: 5 }, /stream is 5/],
    ["event_type is gone", { event_type: null }, /event_type is null/],
    ["key is an object", { key: { a: 1 } }, /key is \{"a":1\}/],
    ["position is a text", { position: "first" }, /position is "first"/],
    ["headers are a list", { headers: [1] }, /headers are \[1\]/],
    ["attempts are a text", { attempts: "many" }, /attempts is "many"/],
    ["status is unknown", { status: "banana" }, /status is "banana"/],
    ["created_at is a text", { created_at: "yesterday" }, /created_at is "yesterday"/],
    ["payload is no JSON", { payload: "{", payload_format: "json" }, /payload is not JSON/],
  ];

  it.each(edits)("%s: dead with the reason, and the rest goes on", async (_, edit, reason) => {
    await using on = await scene();
    await on.enqueue(message(1), message(2, { id: "edited" }), message(3), message(4, { key: "other" }));
    await on.documents.updateOne({ _id: "edited" }, { $set: edit });
    expect(new Set(await on.published())).toEqual(new Set([1, 3, 4]));
    const [letter, ...others] = await on.store.admin.dead({});
    expect(others).toEqual([]);
    expect([letter?.id, letter?.relay]).toEqual(["edited", "r"]);
    expect(letter?.lastError).toMatch(reason);
    const [found] = await on.store.admin.find({ id: "edited" });
    expect(found?.status).toBe("dead");
    expect((await on.store.admin.relays())[0]).toMatchObject({ pending: 0, parked: 0, dead: 1 });
  });

  it("a message that waits behind a failure and has lost its payload", async () => {
    await using on = await scene();
    await on.enqueue(message(1), message(2, { id: "parked" }), message(3));
    const publisher = createMemoryPublisher();
    publisher.fail(() => new Error("later"));
    const backoff = { baseMs: 300, maxMs: 300 };
    const relay = createRelay({
      store: on.store,
      name: "r",
      publisher,
      maintenance: false,
      backoff,
      maxAttempts: 1000,
    });
    await relay.start();
    await until(async () => (await on.documents.countDocuments({ waits: "parked" })) === 3, { what: "parking" });
    await on.documents.updateOne({ _id: "parked" }, { $unset: { payload: 1 } });
    publisher.heal();
    await until(() => publisher.published.length === 2, { what: "the rest of the key" });
    await relay.stop();
    expect(publisher.published.map(({ body }) => body)).toEqual(["1", "3"]);
    expect((await on.store.admin.dead({}))[0]?.lastError).toMatch(/payload is missing/);
    expect((await on.store.admin.relays())[0]).toMatchObject({ pending: 0, parked: 0, blockedKeys: 0, dead: 1 });
  });

  it("a lane that no relay has is found by maintenance", async () => {
    await using on = await scene();
    await on.enqueue(message(1), message(2, { id: "lost" }));
    await on.documents.updateOne({ _id: "lost" }, { $set: { lane: 99 } });
    expect(await on.published()).toEqual([1]);
    await on.store.maintenance.run();
    expect((await on.store.admin.dead({}))[0]).toMatchObject({
      id: "lost",
      lastError: expect.stringMatching(/lane is 99/) as string,
    });
  });

  it("parked messages that were deleted by hand do not hold their key", async () => {
    await using on = await scene();
    await on.enqueue(message(1), message(2));
    const publisher = createMemoryPublisher();
    publisher.fail(() => new Error("later"));
    const backoff = { baseMs: 300, maxMs: 300 };
    const relay = createRelay({
      store: on.store,
      name: "r",
      publisher,
      maintenance: false,
      backoff,
      maxAttempts: 1000,
    });
    await relay.start();
    await until(async () => (await on.documents.countDocuments({ waits: "parked" })) === 2, { what: "parking" });
    await on.documents.deleteMany({});
    publisher.heal();
    await on.enqueue(message(3));
    await until(() => publisher.published.length === 1, { what: "the next message of the key" });
    await relay.stop();
  });
});

describe.skipIf(replicaSet.skipped)("indexes", () => {
  it("that were dropped or changed are named, and made again", async () => {
    await using on = await scene();
    await on.documents.dropIndex("txbox_ready");
    await expect(on.store.migrator.check()).rejects.toMatchObject({
      code: "schema_outdated",
      message: expect.stringMatching(/txbox_ready of outbox is missing/) as string,
    });
    const relay = createRelay({ store: on.store, name: "r", publisher: createMemoryPublisher() });
    await expect(relay.start()).rejects.toMatchObject({ code: "schema_outdated" });
    await on.documents.createIndex({ lane: 1 }, { name: "txbox_ready" });
    await expect(on.store.migrator.check()).rejects.toThrow(/txbox_ready of outbox was changed/);
    const [step] = await on.store.migrator.pending();
    expect(step?.script).toMatch(/dropIndex\("txbox_ready"\)/);
    expect(await on.store.migrator.migrate()).toMatchObject([{ name: "mend_indexes" }]);
    await on.store.migrator.check();
    expect(await on.store.migrator.pending()).toEqual([]);
  });
});

describe.skipIf(replicaSet.skipped)("retention", () => {
  it("deletes what is done and past its time, and nothing else", async () => {
    await using server = await startMongodb({ owned: true, args: ["--setParameter", "ttlMonitorSleepSecs=1"] });
    await using database = await mongoDatabase(server.url);
    const { client } = database;
    const store = createMongoStore({ client, retentionMs: 1000 });
    await store.migrator.migrate();
    const outbox = createOutbox({ store });
    const types = ["good", "later", "never", "good"];
    const messages = types.map((type, n) => ({ stream: "s", type, key: `${type}-${n}`, payload: n }));
    const future = { stream: "s", type: "good", payload: "future", deliverAt: new Date(Date.now() + 3_600_000) };
    await client.withSession((session) =>
      session.withTransaction(() => outbox.enqueue(session, [...messages, future])),
    );
    const publisher = createMemoryPublisher();
    publisher.fail(({ type }) => type === "later");
    publisher.reject(({ type }) => type === "never");
    const backoff = { baseMs: 3_600_000, maxMs: 3_600_000 };
    await createRelay({ store, name: "r", publisher, maintenance: false, backoff }).drainOnce();
    await client.withSession((session) =>
      session.withTransaction(() => outbox.enqueue(session, { stream: "s", type: "new", payload: 1 })),
    );
    const documents = client.db().collection("outbox");
    await until(async () => (await documents.countDocuments({ status: "done" })) === 0, {
      what: "the end of what is done",
    });
    const left = await documents.find().toArray();
    expect(left.map(({ status }) => String(status)).toSorted()).toEqual(["dead", "failed", "new", "new"]);
    expect((await store.admin.dead({})).length).toBe(1);
  });
});

describe.skipIf(replicaSet.skipped)("order", () => {
  it("follows the sequence of the key, not the clocks of writers", async () => {
    await using on = await scene();
    const sequences = on.client.db().collection<{ _id: string; seq: unknown }>("outbox_sequences");
    await on.enqueue(message(1));
    const [first] = await on.documents.find().toArray();
    // A server whose clock was years ahead had given out positions.
    const ahead = Number(first?.["position"]) + 1e14;
    await sequences.updateOne({ _id: "s\0k" }, { $set: { seq: ahead } });
    await on.documents.updateOne({}, { $set: { position: ahead } });
    await on.enqueue(message(2));
    await on.enqueue(message(3));
    const positions = (await on.documents.find().sort({ position: 1 }).toArray()).map(({ position }) =>
      Number(position),
    );
    expect(positions.map((position) => position - ahead)).toEqual([0, 1, 2]);
    expect(await on.published()).toEqual([1, 2, 3]);
  });

  it("is that of commits, when transactions of a key collide", async () => {
    await using on = await scene();
    const counters = on.client.db().collection<{ _id: string; n: number }>("counters");
    await counters.insertOne({ _id: "k", n: 0 });
    let tries = 0;
    const write = (): Promise<unknown> =>
      on.client.withSession((session) =>
        session.withTransaction(async () => {
          tries++;
          // Enqueues before it reads: the transaction that commits later must have the later position.
          await on.outbox.lockKey(session, { stream: "s", key: "k" });
          const counter = await counters.findOneAndUpdate(
            { _id: "k" },
            { $inc: { n: 1 } },
            { session, returnDocument: "after" },
          );
          await on.outbox.enqueue(session, message(counter?.n));
        }),
      );
    await Promise.all(Array.from({ length: 12 }, write));
    expect(tries).toBeGreaterThan(12);
    expect(await on.published()).toEqual(Array.from({ length: 12 }, (_, i) => i + 1));
  });
});

describe.skipIf(replicaSet.skipped)("a wrong password", () => {
  it.each(["polling", "stream"] as const)("is said by the start of a relay by %s", async (source) => {
    const url = new URL(replicaSet.server.url);
    url.username = "nobody";
    url.password = "wrong";
    const client = new MongoClient(url.href, { serverSelectionTimeoutMS: 3000 });
    try {
      const store = bySource(createMongoStore({ client }), source);
      const relay = createRelay({ store, name: "r", publisher: createMemoryPublisher() });
      await expect(relay.start()).rejects.toThrow("Authentication failed");
      await relay.stop();
    } finally {
      await client.close();
    }
  });
});

describe.skipIf(replicaSet.skipped)("a stream that belongs to another relay", () => {
  it("is refused to a second one, and free when the first is dropped", async () => {
    await using on = await scene();
    const run = (name: string, streams?: string[]) =>
      createRelay({
        store: on.store,
        name,
        publisher: createMemoryPublisher(),
        maintenance: false,
        ...(streams === undefined ? {} : { streams }),
      }).drainOnce();
    await run("one", ["a", "b"]);
    await run("two", ["c"]);
    await expect(run("three", ["b"])).rejects.toMatchObject({ code: "invalid_option", field: "streams" });
    await expect(run("all")).rejects.toMatchObject({ code: "invalid_option", field: "streams" });
    await expect(on.store.admin.rewind("one", "earliest")).rejects.toMatchObject({ code: "invalid_option" });
    await on.store.admin.drop("one");
    await run("three", ["b"]);
  });
});

describe.skipIf(replicaSet.skipped)("the primary", () => {
  it("steps down and comes back, and everything goes on", async () => {
    await using on = await scene();
    const publisher = createMemoryPublisher();
    const relay = createRelay({ store: on.store, name: "r", publisher, maintenance: false, leaseMs: 2000 });
    await relay.start();
    let written = 0;
    const writing = new AbortController();
    const writer = (async () => {
      while (!writing.signal.aborted) await on.enqueue(message(++written));
    })();
    await until(() => publisher.published.length > 20, { what: "messages before" });
    await replicaSet.server.stepDown();
    const before = publisher.published.length;
    await until(() => publisher.published.length > before + 20, { what: "messages after", timeoutMs: 60_000 });
    writing.abort();
    await writer;
    await until(() => new Set(publisher.published.map(({ id }) => id)).size === written, { what: "all of them" });
    await relay.stop();
    const firsts = [...new Set(publisher.published.map(({ body }) => Number(body)))];
    expect(firsts).toEqual(Array.from({ length: written }, (_, i) => i + 1));
  });
});
