import type { Store } from "../../../src/core/contracts.ts";
import { transactionRunner } from "../../../src/stores/postgres/postgres-client.ts";
import type { PostgresTx } from "../../../src/stores/postgres/postgres-client.ts";
import { createPostgresStore, type PostgresStoreOptions } from "../../../src/stores/postgres/postgres-store.ts";
import type { AnyTx, StoreContext } from "../../../src/testing/index.ts";
import type { Pool } from "pg";
import type { Driver } from "../../support/postgres-drivers.ts";
import { streamingStore } from "../../support/streaming-session.ts";
import { restoredCopy } from "./restored-copy.ts";
import type { SchemaPool } from "./schema-pool.ts";

export interface Clients {
  readonly driver: Driver;
  /** Stands for another process. */
  readonly other: Driver;
  readonly schemas: SchemaPool;
  /** Relays read the server's log. */
  readonly stream?: boolean;
}

/** A schema of its own for one case, through clients that the suite shares. */
export async function postgresContext({
  driver,
  other,
  schemas,
  stream = false,
}: Clients): Promise<StoreContext & AsyncDisposable> {
  const { database } = schemas;
  const schema = await schemas.take();
  const open = (on: Driver, options: Partial<PostgresStoreOptions> = {}): Store<AnyTx> => {
    const made = createPostgresStore({ client: on.client, schema, ...options });
    return stream ? streamingStore(made, on.client as Pool, schema) : made;
  };
  const store = open(driver);
  const { wal } = createPostgresStore({ client: driver.client, schema });
  if (stream) await wal.enable();
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
    endings: Object.fromEntries(
      ["rollback", "commit", "begin", "select 1; commit"].map((text) => [
        text,
        async (tx: AnyTx) => transactionRunner(tx as PostgresTx).exec(text),
      ]),
    ),
    breakTransaction: (tx) => transactionRunner(tx as PostgresTx).query("select 1 / 0"),
    async spoilSchema(state) {
      if (state === "missing") await database.exec(`drop schema ${schema} cascade`);
      else if (state === "older") await database.query(`delete from ${schema}.migration where version > 1`);
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
      // Sessions that a case has left behind may have slots.
      if (stream) await wal.disable().catch(() => undefined);
      await schemas.giveBack(schema);
    },
  };
}
