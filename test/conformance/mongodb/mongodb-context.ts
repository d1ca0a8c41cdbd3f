import type { MessageSourceName } from "../../../src/core/contracts.ts";
import { bySource } from "../../support/by-source.ts";
import { randomBytes } from "node:crypto";
import { type ClientSession, type MongoClient, ObjectId } from "mongodb";
import type { Store } from "../../../src/core/contracts.ts";
import { createMongoStore } from "../../../src/stores/mongodb/index.ts";
import type { AnotherOptions, AnyTx, StoreContext } from "../../../src/testing/index.ts";

export interface Clients {
  readonly client: MongoClient;
  /** Stands for another process. */
  readonly other: MongoClient;
  readonly database: string;
}

/** Collections of their own for one case, through clients that the suite shares. */
export async function mongodbContext(
  { client, other, database }: Clients,
  source: MessageSourceName = "polling",
): Promise<StoreContext & AsyncDisposable> {
  const prefix = `t_${randomBytes(6).toString("hex")}`;
  const names = { collection: `${prefix}_outbox`, inboxCollection: `${prefix}_inbox` };
  const open = (on: MongoClient, options: AnotherOptions = {}): Store<AnyTx> =>
    bySource(createMongoStore({ client: on, database, ...names, ...options }), source);
  const store = open(client);
  await store.migrator.migrate();
  const db = client.db(database);
  const own = db.collection<{ text: string; n: number }>(`${prefix}_own`);
  await db.createCollection(own.collectionName);
  const migrations = db.collection<{ _id: number }>(`${names.collection}_migrations`);
  const dropAll = async (): Promise<void> => {
    const all = await db.listCollections({ name: new RegExp(`^${prefix}_`) }, { nameOnly: true }).toArray();
    await Promise.all(all.map(({ name }) => db.dropCollection(name)));
  };
  let noted = 0;
  return {
    store,
    another: (options = {}) => open(other, options),
    transaction: (run) => client.withSession((session) => session.withTransaction(() => run(session))),
    async note(tx, text) {
      await own.insertOne({ text, n: ++noted }, { session: tx as ClientSession });
    },
    async notes() {
      return (await own.find().sort({ n: 1 }).toArray()).map(({ text }) => text);
    },
    endings: {
      abortTransaction: (tx) => (tx as ClientSession).abortTransaction(),
      commitTransaction: (tx) => (tx as ClientSession).commitTransaction(),
      startTransaction: async (tx) => (tx as ClientSession).startTransaction(),
      withTransaction: (tx) => (tx as ClientSession).withTransaction(async () => undefined),
      endSession: (tx) => (tx as ClientSession).endSession(),
      "await using": (tx) => (tx as ClientSession)[Symbol.asyncDispose](),
      "the command abortTransaction": (tx) =>
        client.db("admin").command({ abortTransaction: 1 }, { session: tx as ClientSession }),
    },
    async breakTransaction(tx) {
      const session = tx as ClientSession;
      const _id = new ObjectId();
      await own.insertOne({ _id, text: "first", n: 0 }, { session });
      await own.insertOne({ _id, text: "second", n: 0 }, { session });
    },
    async spoilSchema(state) {
      if (state === "missing") await dropAll();
      else {
        if (state === "older") await migrations.deleteMany({});
        await migrations.insertOne({ _id: state === "older" ? -1 : 9999 });
      }
    },
    [Symbol.asyncDispose]: dropAll,
  };
}
