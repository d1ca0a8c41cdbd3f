import { randomBytes } from "node:crypto";
import type { Store } from "../../../src/core/contracts.ts";
import { databaseOf, transactionRunner } from "../../../src/stores/postgres/postgres-client.ts";
import type { PostgresTx } from "../../../src/stores/postgres/postgres-client.ts";
import { createPostgresStore, type PostgresStoreOptions } from "../../../src/stores/postgres/postgres-store.ts";
import type { AnyTx, StoreContext } from "../../../src/testing/index.ts";
import type { Driver } from "../../support/postgres-drivers.ts";
import { restoredCopy } from "./restored-copy.ts";

/** A schema of its own for one case, through clients that the suite shares; `other` stands for another process. */
export async function postgresContext(driver: Driver, other: Driver): Promise<StoreContext & AsyncDisposable> {
  const schema = `c_${randomBytes(6).toString("hex")}`;
  const database = databaseOf(driver.client);
  const open = (on: Driver, options: Partial<PostgresStoreOptions> = {}): Store<AnyTx> =>
    createPostgresStore({ client: on.client, schema, ...options });
  const store = open(driver);
  await store.migrator.migrate();
  await database.query(`create table ${schema}.own (n bigint generated always as identity, text text)`);
  return {
    store,
    another: (options = {}) => open(other, options),
    transaction: (run) => database.transaction((tx) => run(tx)),
    async note(tx, text) {
      await transactionRunner(tx as PostgresTx).query(`insert into ${schema}.own (text) values ($1::text)`, [text]);
    },
    async notes() {
      return (await database.query(`select text from ${schema}.own order by n`)).map(([text]) => String(text));
    },
    async undo(tx, run) {
      const sql = transactionRunner(tx as PostgresTx);
      await sql.query("savepoint undone");
      await run();
      await sql.query("rollback to savepoint undone");
    },
    async spoilSchema(state) {
      if (state === "missing") await database.exec(`drop schema ${schema} cascade`);
      // A version before the first stands for an old one, since there is only one so far.
      else if (state === "older") await database.query(`update ${schema}.migration set version = -1`);
      else await database.query(`insert into ${schema}.migration (version, name) values (9999, 'later')`);
    },
    withRetention: (retention) => open(driver, retention),
    async restore() {
      const copy = await restoredCopy(driver, schema);
      return {
        store: copy,
        transaction: (run) => database.transaction((tx) => run(tx)),
        rebase: () => copy.rebase(),
      };
    },
    async [Symbol.asyncDispose]() {
      await database.exec(`drop schema if exists ${schema} cascade; drop schema if exists ${schema}_copy cascade`);
    },
  };
}
