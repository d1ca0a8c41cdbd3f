import type { Store } from "../../../src/core/contracts.ts";
import { transactionRunner } from "../../../src/stores/postgres/postgres-client.ts";
import type { PostgresBridge, PostgresTx } from "../../../src/stores/postgres/postgres-client.ts";
import { createPostgresStore, type PostgresStoreOptions } from "../../../src/stores/postgres/postgres-store.ts";
import type { AnyTx, StoreContext } from "../../../src/testing/index.ts";
import type { Pool } from "pg";
import { rawTransaction, type Driver } from "../../support/postgres-drivers.ts";
import { streamingStore } from "../../support/streaming-session.ts";
import { restoredCopy } from "./restored-copy.ts";
import type { SchemaPool } from "./schema-pool.ts";

export interface Library {
  readonly bridge: PostgresBridge;
  /** The application's own transaction. */
  readonly transaction: <T>(run: (tx: AnyTx) => Promise<T>) => Promise<T>;
}

export interface Clients {
  /** The library that stores are made with, where that is not the driver itself. */
  readonly library?: ((driver: Driver) => Library) | undefined;
  readonly driver: Driver;
  /** Stands for another process. */
  readonly other: Driver;
  readonly schemas: SchemaPool;
  /** A client of its own with one connection; undefined where the driver is one anyway. */
  readonly sole?: (() => Driver) | undefined;
  /** Relays read the server's log. */
  readonly stream?: boolean;
}

/** A schema of its own for one case, through clients that the suite shares. */
export async function postgresContext({
  driver,
  other,
  schemas,
  sole,
  stream = false,
  library,
}: Clients): Promise<StoreContext & AsyncDisposable> {
  const { database } = schemas;
  const schema = await schemas.take();
  const open = (on: Driver, options: Partial<PostgresStoreOptions> = {}): Store<AnyTx> => {
    const made = createPostgresStore({ client: library?.(on).bridge ?? on.client, schema, ...options });
    return stream ? streamingStore(made, on.client as Pool, schema) : made;
  };
  const store = open(driver);
  const { wal } = createPostgresStore({ client: driver.client, schema });
  if (stream) await wal.enable();
  const { bridge, transaction } = library?.(driver) ?? {
    bridge: undefined,
    transaction: <T>(run: (tx: AnyTx) => Promise<T>) => database.transaction((tx) => run(tx)),
  };
  const runner = (tx: AnyTx) => transactionRunner(tx as PostgresTx, bridge);
  return {
    store,
    another: (options = {}) => open(other, options),
    transaction,
    async note(tx, text) {
      await runner(tx).query(`insert into ${schema}.own (text) values ($1::text)`, [text]);
    },
    async notes() {
      return (await database.query(`select text from ${schema}.own order by n`)).map(([text]) => String(text));
    },
    async soleClient() {
      const own = sole?.();
      const on = own ?? driver;
      return {
        store: createPostgresStore({ client: library?.(on).bridge ?? on.client, schema }),
        transaction: library?.(on).transaction ?? ((run) => rawTransaction(on, run)),
        [Symbol.asyncDispose]: async () => own?.close(),
      };
    },
    async undo(tx, run) {
      const sql = runner(tx);
      await sql.query("savepoint undone");
      await run();
      await sql.query("rollback to savepoint undone");
    },
    endings: Object.fromEntries(
      ["rollback", "commit", "begin", "select 1; commit"].map((text) => [
        text,
        async (tx: AnyTx) => runner(tx).exec(text),
      ]),
    ),
    breakTransaction: (tx) => runner(tx).query("select 1 / 0"),
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
