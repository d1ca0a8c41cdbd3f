import pg from "pg";
import { createPostgresStore, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { createDatabase } from "../harness/create-database.ts";
import type { World } from "./stage.ts";

export const RELAY = "soak";
export const STREAM = "soak";
export const LEASE_MS = 1500;
export const KEYS: readonly string[] = Array.from({ length: 12 }, (_, i) => `key-${i}`);
/** For transactions that hold their aggregate for long. */
export const SLOW_KEYS: readonly string[] = Array.from({ length: 4 }, (_, i) => `slow-${i}`);

export function openPool(url: string, max: number, options?: string): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max,
    connectionTimeoutMillis: 5000,
    ...(options === undefined ? {} : { options }),
  });
  // The server is killed all the time; a query that is under way sees the error by itself.
  pool.on("error", () => undefined);
  return pool;
}

/** Segments of the log live for moments, so that rotation and dropping happen all the time. */
export function soakStore(pool: pg.Pool): PostgresStore {
  return createPostgresStore({ client: pool, segmentMs: 1000, retentionMs: 500 });
}

export async function createWorld(serverUrl: string): Promise<World> {
  const source = await createDatabase(serverUrl, "source");
  const target = await createDatabase(serverUrl, "target");
  await setUp(
    source.url,
    `create table counter (key text primary key, n bigint not null default 0) with (fillfactor = 50);
     create table business (key text not null, n bigint not null, nonce text not null, kind text not null,
       message_id text not null, primary key (key, n));
     insert into counter (key) select unnest('{${[...KEYS, ...SLOW_KEYS].join(",")}}'::text[])`,
  );
  // No unique constraint: a doubled effect must be visible.
  await setUp(
    target.url,
    `create table effect (seq bigint generated always as identity (cache 1) primary key, key text not null, n bigint not null,
       nonce text not null, message_id text not null)`,
  );
  return { source: source.url, target: target.url };
}

async function setUp(url: string, sql: string): Promise<void> {
  const pool = openPool(url, 2);
  try {
    await pool.query(sql);
    await soakStore(pool).migrator.migrate();
  } finally {
    await pool.end();
  }
}
