import { MongoClient } from "mongodb";
import pg from "pg";
import type { Store } from "../../src/core/contracts.ts";
import { createMongoStore } from "../../src/stores/mongodb/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { startMongodb } from "../harness/index.ts";
import { inTransaction } from "../support/in-transaction.ts";

export type StoreName = "postgres" | "mongodb";

export const STORES: readonly StoreName[] = ["postgres", "mongodb"];

/** A migrated store, and transactions of an application on it. */
export interface StoreTarget extends AsyncDisposable {
  readonly store: Store<object>;
  transaction<T>(run: (tx: object) => Promise<T>): Promise<T>;
}

export async function openStore(name: StoreName, databaseUrl: string): Promise<StoreTarget> {
  const target = await (name === "postgres" ? postgresTarget(databaseUrl) : mongodbTarget());
  await target.store.migrator.migrate();
  return target;
}

async function postgresTarget(url: string): Promise<StoreTarget> {
  const pool = new pg.Pool({ connectionString: url, max: 8 });
  return {
    store: createPostgresStore({ client: pool }) as unknown as Store<object>,
    transaction: (run) => inTransaction(pool, run),
    [Symbol.asyncDispose]: () => pool.end(),
  };
}

async function mongodbTarget(): Promise<StoreTarget> {
  const server = await startMongodb();
  const url = new URL(server.url);
  url.pathname = `/fuzz_${process.pid}_${Date.now()}`;
  const client = await new MongoClient(url.href).connect();
  return {
    store: createMongoStore({ client }) as unknown as Store<object>,
    transaction: (run) => client.withSession((session) => session.withTransaction(() => run(session))),
    async [Symbol.asyncDispose]() {
      await client.db().dropDatabase();
      await client.close();
      await server.stop();
    },
  };
}
