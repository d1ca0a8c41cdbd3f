import { randomBytes } from "node:crypto";
import pg from "pg";

export interface TestDatabase {
  readonly url: string;
  readonly name: string;
  drop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Creates an empty database on the server of `url`. `drop` also ends the connections that are still open to it. */
export async function createDatabase(url: string, name = `t_${randomBytes(6).toString("hex")}`): Promise<TestDatabase> {
  const quoted = `"${name.replaceAll('"', '""')}"`;
  await execute(url, `create database ${quoted}`);
  const target = new URL(url);
  target.pathname = `/${encodeURIComponent(name)}`;
  const drop = (): Promise<void> => execute(url, `drop database if exists ${quoted} with (force)`);
  return { url: target.href, name, drop, [Symbol.asyncDispose]: drop };
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
