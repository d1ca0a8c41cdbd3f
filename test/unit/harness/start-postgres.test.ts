import { existsSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type PostgresServer, serverOrSkip, type ServerSlot, startPostgres } from "../../harness/index.ts";

let slot: ServerSlot<PostgresServer>;

beforeAll(async () => {
  slot = await serverOrSkip("PostgreSQL", () => startPostgres({ owned: true, settings: { work_mem: "5MB" } }));
});
afterAll(() => slot.stop());

describe("startPostgres", () => {
  test("gives a server with the settings the suites rely on", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    const show = async (name: string): Promise<unknown> => (await query(`show ${name}`))[0]?.[name];
    expect(await show("wal_level")).toBe("logical");
    expect(await show("max_prepared_transactions")).toBe("64");
    expect(await show("max_connections")).toBe("200");
    expect(await show("fsync")).toBe("off");
    expect(await show("work_mem")).toBe("5MB");
  });

  test("keeps committed data over kill -9 and restart, on the same port", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    const { server } = slot;
    await query("create table kept (n int); insert into kept values (42); checkpoint");
    const before = { pid: server.pid, url: server.url };

    await server.kill();
    expect(server.pid).toBeUndefined();
    await expect(query("select 1")).rejects.toThrow(/ECONNREFUSED/);

    await server.restart();
    expect(server.url).toBe(before.url);
    expect(server.pid).not.toBe(before.pid);
    expect(await query("select n from kept")).toEqual([{ n: 42 }]);
  });

  test("a restart of a running server keeps the data as well", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    await slot.server.restart();
    expect(await query("select n from kept")).toEqual([{ n: 42 }]);
  });

  test("stop removes the data folder", async ({ skip }) => {
    skip(slot.skipped, slot.reason);
    const folder = (await query("show data_directory"))[0]?.["data_directory"] as string;
    expect(existsSync(folder)).toBe(true);
    await slot.server.stop();
    expect(existsSync(folder)).toBe(false);
  });
});

async function query(sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: slot.server.url });
  client.on("error", () => undefined);
  await client.connect();
  try {
    const result = await client.query<Record<string, unknown>>(sql);
    return result.rows;
  } finally {
    await client.end();
  }
}
