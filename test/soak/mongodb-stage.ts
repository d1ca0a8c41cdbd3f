import { bySource } from "../support/by-source.ts";
import type { SourceEvent } from "../../src/core/contracts.ts";
import { type ClientSession, MongoClient } from "mongodb";
import { createMongoStore, type MongoStore } from "../../src/stores/mongodb/index.ts";
import { startMongodb } from "../harness/start-mongodb.ts";
import type { BusinessRow, Fact } from "./checker.ts";
import type { Stage, Watch, World } from "./stage.ts";
import { KEYS, SLOW_KEYS } from "./world.ts";

export interface Business extends BusinessRow {
  message_id: string;
}

interface Effect extends Fact {
  /** The order of effects within a key. */
  seq: number;
}

/** A transaction that a killed process left open holds what it wrote until then. */
const TRANSACTION_SECONDS = 3;

export function openMongo(url: string, connections: number): MongoClient {
  return new MongoClient(url, { maxPoolSize: connections, serverSelectionTimeoutMS: 5000 });
}

export function mongoSoakStore(client: MongoClient): MongoStore<ClientSession> {
  return createMongoStore({ client });
}

export const mongodbStage: Stage = {
  name: "mongodb",
  writerFile: "mongodb-writer-process.ts",
  start: () =>
    startMongodb({ owned: true, args: ["--setParameter", `transactionLifetimeLimitSeconds=${TRANSACTION_SECONDS}`] }),
  async createWorld(serverUrl) {
    const at = (name: string): string => {
      const url = new URL(serverUrl);
      url.pathname = `/${name}`;
      return url.href;
    };
    const world = { source: at("source"), target: at("target") };
    for (const url of [world.source, world.target]) {
      const client = openMongo(url, 2);
      await mongoSoakStore(client).migrator.migrate();
      for (const name of ["business", "counter", "effect", "order"]) await client.db().createCollection(name);
      const counters = [...KEYS, ...SLOW_KEYS].map((_id) => ({ _id, n: 0 }));
      await client.db().collection<{ _id: string; n: number }>("counter").insertMany(counters);
      await client.close();
    }
    return world;
  },
  openStore(url, connections) {
    const client = openMongo(url, connections);
    return { store: mongoSoakStore(client), close: () => client.close() };
  },
  async writeEffect(tx, { key, n, nonce }) {
    const session = tx as ClientSession & { client: MongoClient };
    const db = session.client.db();
    const order = await db
      .collection<{ _id: string; seq: number }>("order")
      .findOneAndUpdate({ _id: key }, { $inc: { seq: 1 } }, { session, upsert: true, returnDocument: "after" });
    await db.collection<Effect>("effect").insertOne({ key, n, nonce, seq: order?.seq ?? 0 }, { session });
  },
  watch,
};

export const mongodbStreamStage: Stage = {
  ...mongodbStage,
  name: "mongodb-change-stream",
  openStore(url, connections) {
    const client = openMongo(url, connections);
    const onEvent = (event: SourceEvent): void => {
      const how = event.type === "stream_started" ? `from ${event.from}` : event.error;
      process.stdout.write(`${event.type} ${how}\n`);
    };
    return { store: bySource(mongoSoakStore(client), "stream", onEvent), close: () => client.close() };
  },
};

function watch(world: World): Watch {
  const source = openMongo(world.source, 4);
  const target = openMongo(world.target, 2);
  const business = source.db().collection<Business>("business");
  const effect = target.db().collection<Effect>("effect");
  const outbox = source.db().collection("outbox");
  const store = mongoSoakStore(source);
  return {
    store,
    resolve: () => Promise.resolve(0),
    left: async () => ({
      undecided: 0,
      committed: await business.countDocuments(),
      effects: (await effect.distinct("nonce")).length,
    }),
    business: () => business.find({}, { projection: { _id: 0, message_id: 0 } }).toArray(),
    effects: () => effect.find({}, { projection: { _id: 0 }, sort: { key: 1, seq: 1 } }).toArray(),
    async leftovers() {
      const [relay] = await store.admin.relays();
      const owned = (relay?.lanes ?? []).filter(({ owner, leaseMs }) => owner !== null && leaseMs > 0);
      return {
        open: await outbox.countDocuments({ status: { $nin: ["done", "dead"] } }),
        waiting: await outbox.countDocuments({ waits: { $exists: true } }),
        blocked: relay?.blockedKeys ?? -1,
        "unowned lanes": 64 - owned.reduce((sum, { lanes }) => sum + lanes, 0),
      };
    },
    close: async () => void (await Promise.all([source.close(), target.close()])),
  };
}
