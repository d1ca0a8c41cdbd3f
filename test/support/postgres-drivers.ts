import { PGlite } from "@electric-sql/pglite";
import pg from "pg";
import postgres from "postgres";
import { classify } from "../../src/stores/postgres/classify-error.ts";
import { createWriter } from "../../src/stores/postgres/postgres-writer.ts";
import { databaseOf, transactionRunner } from "../../src/stores/postgres/postgres-client.ts";
import type { PostgresClient, PostgresTx, Row } from "../../src/stores/postgres/postgres-client.ts";
import { createLedger } from "../../src/stores/postgres/postgres-ledger.ts";
import { createMigrator } from "../../src/stores/postgres/postgres-migrator.ts";
import { postgresNames } from "../../src/stores/postgres/postgres-names.ts";

export type DriverName = "node-postgres" | "postgres.js" | "PGlite";

export interface Driver {
  readonly name: DriverName;
  /** What createPostgresStore takes. */
  readonly client: PostgresClient;
  close(): Promise<void>;
}

/** A client of each driver, as an application would build it. */
export function openDriver(name: DriverName, url: string, max = 10): Driver {
  switch (name) {
    case "node-postgres": {
      const pool = new pg.Pool({ connectionString: url, max });
      pool.on("error", () => undefined);
      return { name, client: pool, close: () => pool.end() };
    }
    case "postgres.js": {
      const sql = postgres(url, { max, onnotice: () => undefined });
      // Without a timeout, end() waits for ever for a connection that the server terminated.
      return { name, client: sql, close: () => sql.end({ timeout: 2 }) };
    }
    case "PGlite": {
      const db = new PGlite();
      return { name, client: db, close: () => db.close() };
    }
  }
}

/** A transaction as the driver itself has it, which nothing guards. */
export async function rawTransaction<T>({ name, client }: Driver, run: (tx: PostgresTx) => Promise<T>): Promise<T> {
  if (name === "postgres.js") return (await (client as postgres.Sql).begin(run)) as T;
  if (name === "PGlite") return (client as PGlite).transaction(run);
  const connection = await (client as pg.Pool).connect();
  try {
    await connection.query("begin");
    const result = await run(connection);
    await connection.query("commit");
    return result;
  } catch (error) {
    await connection.query("rollback");
    throw error;
  } finally {
    connection.release();
  }
}

export interface PartsOptions {
  schema?: string;
  tablePrefix?: string;
  receiptRetentionMs?: number;
}

/** The parts of a store that need no relay. */
export function storeParts(driver: Pick<Driver, "client">, options: PartsOptions = {}) {
  const { schema = "txbox", tablePrefix = "", receiptRetentionMs } = options;
  const database = databaseOf(driver.client);
  const names = postgresNames({ schema, tablePrefix });
  return {
    database,
    names,
    writer: createWriter({ names }),
    classify,
    ledger: createLedger({ database, names, ...(receiptRetentionMs === undefined ? {} : { receiptRetentionMs }) }),
    migrator: createMigrator({ database, names }),
    /** The application's own transaction. */
    inTransaction: <T>(run: (tx: PostgresTx, query: Query) => Promise<T>) =>
      database.transaction((tx) => run(tx, (text, params) => transactionRunner(tx).query(text, params))),
  };
}

export type Query = (text: string, params?: readonly (string | null)[]) => Promise<Row[]>;
export type StoreParts = ReturnType<typeof storeParts>;
