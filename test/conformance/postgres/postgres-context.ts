import type { Store } from "../../../src/core/contracts.ts";
import { transactionRunner } from "../../../src/stores/postgres/postgres-client.ts";
import type { PostgresTx } from "../../../src/stores/postgres/postgres-client.ts";
import { createPostgresStore, type PostgresStoreOptions } from "../../../src/stores/postgres/postgres-store.ts";
import type { AnyTx, StoreContext } from "../../../src/testing/index.ts";
import type { Driver } from "../../support/postgres-drivers.ts";
import { restoredCopy } from "./restored-copy.ts";
import type { SchemaPool } from "./schema-pool.ts";

export interface Clients {
  readonly driver: Driver;
  /** Stands for another process. */
  readonly other: Driver;
  readonly schemas: SchemaPool;
}

/** A schema of its own for one case, through clients that the suite shares. */
export async function postgresContext({ driver, other, schemas }: Clients): Promise<StoreContext & AsyncDisposable> {
  const { database } = schemas;
  const schema = await schemas.take();
  const open = (on: Driver, options: Partial<PostgresStoreOptions> = {}): Store<AnyTx> =>
    createPostgresStore({ client: on.client, schema, ...options });
  const store = open(driver);
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
      // Versions before the first stand for old ones.
      else if (state === "older") await database.query(`update ${schema}.migration set version = version - 1000`);
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
    [Symbol.asyncDispose]: () => schemas.giveBack(schema),
  };
}
