import { setTimeout as sleep } from "node:timers/promises";
import { type ClientSession, type Collection, MongoClient } from "mongodb";
import mongoose from "mongoose";
import { afterAll, describe, expect, it } from "vitest";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { createInbox, type HandleResult } from "../../../src/index.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import { serverOrSkip, startMongodb } from "../../harness/index.ts";
import { mongoDatabase } from "../../support/mongodb-database.ts";
import { createSubscription } from "../../support/subscription.ts";

const slot = await serverOrSkip("MongoDB", () => startMongodb());
afterAll(() => slot.stop());

interface Effect {
  _id: string;
  n: number;
}

type Handler = (session: ClientSession, effects: Collection<Effect>) => Promise<unknown>;

/** Delivers one message to a handler; what became of it, of its receipt and of its effects. */
async function deliver(handler: Handler) {
  await using database = await mongoDatabase(slot.server.url);
  const { client } = database;
  const store = createMongoStore({ client });
  await store.migrator.migrate();
  const effects = client.db().collection<Effect>("effects");
  await effects.insertOne({ _id: "there", n: 0 });
  let runs = 0;
  const bus = createSubscription();
  const inbox = createInbox<Record<string, unknown>, ClientSession>({ store, consumer: "c" });
  await inbox.on("t", (session) => (runs++, handler(session, effects))).start(bus);
  const result: HandleResult = await bus.deliver({ id: uuidv7(), type: "t", body: "1", headers: {} });
  const receipts = await client.db().collection("inbox").find().toArray();
  const { n: there } = (await effects.findOne({ _id: "there" }))!;
  return {
    result,
    runs,
    receipts: receipts.map(({ status, attempts }) => [status, attempts] as unknown),
    written: await effects.countDocuments({ _id: { $ne: "there" } }),
    there,
  };
}

describe.skipIf(slot.skipped)("a handler on MongoDB", () => {
  it.each<[string, (session: ClientSession) => Promise<unknown>]>([
    ["abortTransaction", (session) => session.abortTransaction()],
    ["commitTransaction", (session) => session.commitTransaction()],
    ["endSession", (session) => session.endSession()],
  ])("that calls %s has failed: neither an effect nor a processed receipt is left", async (_, end) => {
    const seen = await deliver(async (session, effects) => {
      await effects.insertOne({ _id: "half", n: 1 }, { session });
      await end(session);
    });
    expect(seen.result).toMatchObject({ status: "failed", error: { code: "no_transaction", field: "tx" } });
    expect(seen).toMatchObject({ runs: 1, receipts: [["failed", 1]], written: 0 });
  });

  it("that swallows a duplicate key has failed, soon", async () => {
    const seen = await deliver(async (session, effects) => {
      await effects.insertOne({ _id: "half", n: 1 }, { session });
      await effects.insertOne({ _id: "there", n: 1 }, { session }).catch(() => undefined);
    });
    expect(seen.result).toMatchObject({ status: "failed", error: { code: "no_transaction" } });
    expect(String((seen.result as { error: unknown }).error)).toMatch(/duplicate key.*do not catch it/);
    expect(seen).toMatchObject({ receipts: [["failed", 1]], written: 0 });
    expect(seen.runs).toBeLessThanOrEqual(2);
  });

  it("that always collides with a write of its own has failed after a number of runs", async () => {
    const seen = await deliver(async (session, effects) => {
      await effects.findOne({ _id: "there" }, { session });
      await effects.updateOne({ _id: "there" }, { $inc: { n: 1 } });
      await effects.updateOne({ _id: "there" }, { $inc: { n: 100 } }, { session });
    });
    expect(seen.result).toMatchObject({ status: "failed", error: { code: 112 } });
    expect(seen.receipts).toEqual([["failed", 1]]);
    expect([seen.runs, seen.there]).toEqual([20, 20]);
  });

  it("writes through mongoose with its session", async () => {
    await using database = await mongoDatabase(slot.server.url);
    const connection = await mongoose.createConnection(database.url).asPromise();
    try {
      const Order = connection.model("Order", new mongoose.Schema({ total: Number }));
      await Order.createCollection();
      const store = createMongoStore({ client: connection.getClient() });
      await store.migrator.migrate();
      const inbox = createInbox({ store, consumer: "c" });
      inbox.on("t", async (session) => {
        await new Order({ total: 1 }).save({ session });
        await Order.create([{ total: 2 }], { session });
      });
      const message = { id: uuidv7(), type: "t", body: "1", headers: {} };
      expect([await inbox.handle(message), await inbox.handle(message)]).toEqual(["processed", "duplicate"]);
      expect(await Order.countDocuments()).toBe(2);
    } finally {
      await connection.close();
    }
  });

  it("whose client the application closes is not to blame, and does not hinder the closing", async () => {
    await using database = await mongoDatabase(slot.server.url);
    const client = await new MongoClient(database.url).connect();
    const store = createMongoStore({ client });
    await store.migrator.migrate();
    const running = Promise.withResolvers<void>();
    const bus = createSubscription();
    const inbox = createInbox<Record<string, unknown>, ClientSession>({ store, consumer: "c", maxAttempts: 1 });
    inbox.on("t", async (session) => {
      await client.db().collection("effects").insertOne({ n: 1 }, { session });
      running.resolve();
      await sleep(300);
    });
    await inbox.start(bus);
    const delivering = bus.deliver({ id: uuidv7(), type: "t", body: "1", headers: {} });
    await running.promise;
    await client.close();
    expect(await delivering).toMatchObject({ status: "unavailable" });
    expect(await database.client.db().collection("effects").countDocuments()).toBe(0);
    expect(await database.client.db().collection("inbox").countDocuments()).toBe(0);
  });
});
