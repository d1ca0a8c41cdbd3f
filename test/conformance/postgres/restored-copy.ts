import { randomBytes } from "node:crypto";
import { databaseOf, type Database } from "../../../src/stores/postgres/postgres-client.ts";
import { createPostgresStore, type PostgresStore } from "../../../src/stores/postgres/postgres-store.ts";
import type { Driver } from "../../support/postgres-drivers.ts";

/** Parents before children. */
const TABLES = [
  "message",
  "kept_message",
  "enqueued_id",
  "scheduled",
  "relay",
  "cursor",
  "lane",
  "blocked",
  "parked",
  "delivery",
  "dead",
  "batch",
];

/** The server that the rows come from had counted this much further. */
const AHEAD = 1_000_000_000n;

/**
 * The rows of a schema in another one, as logical replication or a dump without sequences leaves them: written by
 * other transactions than they say, and with transaction ids that this server has yet to reach.
 */
export async function restoredCopy(driver: Driver, schema: string): Promise<PostgresStore> {
  const target = `${schema}_${randomBytes(3).toString("hex")}`;
  const database = databaseOf(driver.client);
  const store = createPostgresStore({ client: driver.client, schema: target });
  await store.migrator.migrate();
  for (const table of TABLES) {
    const columns = await columnsOf(database, schema, table);
    await database.query(
      `insert into ${target}.${table} (${columns}) overriding system value select ${columns} from ${schema}.${table}`,
    );
  }
  await database.query(`update ${target}.message set xid = (xid::text::numeric + ${AHEAD})::text::xid8`);
  for (const table of ["cursor", "batch"]) await moveSnapshots(database, `${target}.${table}`);
  return store;
}

async function columnsOf(database: Database, schema: string, table: string): Promise<string> {
  const rows = await database.query(
    `select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
     where attrelid = $1::text::regclass and attnum > 0 and not attisdropped`,
    [`${schema}.${table}`],
  );
  return String(rows[0]?.[0]);
}

async function moveSnapshots(database: Database, table: string): Promise<void> {
  for (const column of ["prev", "cur"]) {
    const rows = await database.query(`select distinct ${column}::text from ${table} where ${column} is not null`);
    for (const [snapshot] of rows) {
      const moved = String(snapshot).replaceAll(/\d+/g, (xid) => (xid === "1" ? xid : String(BigInt(xid) + AHEAD)));
      await database.query(`update ${table} set ${column} = $1::text::pg_snapshot where ${column}::text = $2::text`, [
        moved,
        String(snapshot),
      ]);
    }
  }
  // Whatever wrote the row last, it was not the transaction that it names.
  if (table.endsWith(".cursor")) {
    await database.query(`update ${table} set fin = null, stamp = (stamp::text::numeric + ${AHEAD})::text::xid8`);
  }
}
