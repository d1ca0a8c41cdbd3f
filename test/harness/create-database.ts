import { randomBytes } from "node:crypto";
import pg from "pg";

export interface TestDatabase {
  readonly url: string;
  readonly name: string;
  drop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Creates an empty database on the server of `url`, or a copy of the database `template`, to which no client may be connected.
 * `drop` also ends the connections that are still open to it.
 */
export async function createDatabase(
  url: string,
  name = `t_${randomBytes(6).toString("hex")}`,
  template?: string,
): Promise<TestDatabase> {
  const quoted = `"${name.replaceAll('"', '""')}"`;
  await execute(url, `create database ${quoted}${template === undefined ? "" : ` template "${template}"`}`);
  const target = new URL(url);
  target.pathname = `/${encodeURIComponent(name)}`;
  const drop = async (): Promise<void> => {
    await execute(url, leave(name));
    await execute(url, `drop database if exists ${quoted} with (force)`);
  };
  return { url: target.href, name, drop, [Symbol.asyncDispose]: drop };
}

/** `pool.end()` resolves before its sessions have ended; the error of one that is killed meanwhile has no listener. */
function leave(name: string): string {
  return `do $$ begin
    for i in 1..25 loop
      exit when not exists (select from pg_stat_activity where datname = '${name.replaceAll("'", "''")}');
      perform pg_sleep(0.02);
      perform pg_stat_clear_snapshot();
    end loop;
  end $$`;
}

async function execute(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000, query_timeout: 30_000 });
  client.on("error", () => undefined);
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
