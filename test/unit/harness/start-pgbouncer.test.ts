import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type PgBouncerServer,
  serverOrSkip,
  type ServerSlot,
  startPgBouncer,
  type TestDatabase,
} from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";

describe.skipIf(!hasPostgres())("startPgBouncer", () => {
  let database: TestDatabase;
  let slot: ServerSlot<PgBouncerServer>;

  beforeAll(async () => {
    database = await testDatabase();
    slot = await serverOrSkip("PgBouncer", () => startPgBouncer({ postgresUrl: database.url, poolSize: 1 }));
  }, 300_000);
  afterAll(async () => {
    await slot.stop();
    await database.drop();
  });

  test("pools by transaction: two clients share one server connection", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    const clients = [1, 2].map(() => new pg.Client({ connectionString: slot.server.url }));
    await Promise.all(clients.map((client) => client.connect()));
    const sql = "select pg_backend_pid() as pid, current_database() as name";
    const rows = [];
    for (const client of clients) rows.push((await client.query<{ pid: number; name: string }>(sql)).rows[0]);
    await Promise.all(clients.map((client) => client.end()));
    expect(rows[0]).toEqual(rows[1]);
    expect(rows[0]?.name).toBe(database.name);
  });
});
