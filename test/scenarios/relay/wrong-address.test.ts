import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import { createInbox, createRelay, publishEach } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";

const publisher = publishEach(async () => undefined);

describe.skipIf(!hasPostgres())("what waiting cannot mend is said by start()", () => {
  let database: TestDatabase;
  const pools: pg.Pool[] = [];
  const storeAt = (change: (url: URL) => void = () => undefined) => {
    const url = new URL(database.url);
    change(url);
    const pool = new pg.Pool({ connectionString: url.href });
    pool.on("error", () => undefined);
    pools.push(pool);
    return createPostgresStore({ client: pool });
  };

  beforeAll(async () => {
    database = await testDatabase();
  });
  afterAll(async () => {
    await Promise.all(pools.map((pool) => pool.end()));
    await database.drop();
  });

  it.each<[string, (url: URL) => void, string]>([
    ["a database that does not exist", (url) => (url.pathname = "/nowhere"), "3D000"],
    ["a role that does not exist", (url) => (url.username = "nobody_here"), "28000"],
  ])("%s", async (_, change, code) => {
    const relay = createRelay({ store: storeAt(change), name: "r", publisher });
    await expect(relay.start()).rejects.toMatchObject({ code });
    await relay.stop();
  });

  it("a role without rights, also to an inbox", async () => {
    const role = `stranger_${database.name}`;
    const admin = storeAt();
    await admin.migrator.migrate();
    const pool = pools.at(-1)!;
    await pool.query(`create role ${role} login`);
    const store = storeAt((url) => (url.username = role));
    await expect(createRelay({ store, name: "r", publisher }).start()).rejects.toMatchObject({ code: "42501" });
    const inbox = createInbox({ store, consumer: "c" }).on("t", async () => undefined);
    await expect(inbox.start(createInProcessBus())).rejects.toMatchObject({ code: "42501" });
    await pool.query(`drop role ${role}; drop schema txbox cascade`);
  });

  it("a missing schema, also to an inbox", async () => {
    const store = storeAt();
    await expect(createRelay({ store, name: "r", publisher }).start()).rejects.toMatchObject({
      code: "schema_missing",
    });
    const inbox = createInbox({ store, consumer: "c" }).on("t", async () => undefined);
    await expect(inbox.start(createInProcessBus())).rejects.toMatchObject({ code: "schema_missing" });
    await expect(store.maintenance.run()).rejects.toMatchObject({ code: "schema_missing" });
    await store.migrator.migrate();
    await inbox.start(createInProcessBus());
    await inbox.stop();
  });

  it("but not a database that is away: the inbox starts", async () => {
    const store = storeAt((url) => (url.port = "1"));
    const inbox = createInbox({ store, consumer: "c" }).on("t", async () => undefined);
    await inbox.start(createInProcessBus());
    await inbox.stop();
  });

  it("a connection that is cut while it lies idle ends no process", async () => {
    const pool = new pg.Pool({ connectionString: database.url });
    pools.push(pool);
    const store = createPostgresStore({ client: pool });
    createPostgresStore({ client: pool });
    expect(pool.listenerCount("error")).toBe(1);
    await store.migrator.migrate();
    const { rows } = await pool.query<{ pid: number }>("select pg_backend_pid() as pid");
    const other = new pg.Client(database.url);
    await other.connect();
    await other.query("select pg_terminate_backend($1)", [rows[0]!.pid]);
    await other.end();
    await until(() => pool.totalCount === 0, { what: "the loss to be noticed" });
    expect(await store.admin.relays()).toEqual([]);
  });
});
