import pg from "pg";
import { afterAll, describe, expect, it } from "vitest";
import { createInbox, publishEach } from "../../../src/index.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { MIGRATIONS } from "../../../src/stores/postgres/migrations/index.ts";
import { databaseOf } from "../../../src/stores/postgres/postgres-client.ts";
import { createMigrator } from "../../../src/stores/postgres/postgres-migrator.ts";
import { postgresNames } from "../../../src/stores/postgres/postgres-names.ts";
import { createDatabase, serverOrSkip, startPostgres } from "../../harness/index.ts";
import { hasPostgres, sharedPostgresUrl } from "../../harness/shared-postgres.ts";
import { calledIn, setTraps, SPRUNG } from "../support/traps.ts";
import {
  consumeInEveryWay,
  hang,
  recoverInEveryWay,
  relayInEveryWay,
  writeInEveryWay,
  type PoolStore,
} from "../support/whole-scene.ts";

// An older server than the one that comes with the packages.
const slot = await serverOrSkip("PostgreSQL of the system", () => startPostgres({ binaries: "path", owned: true }));
afterAll(() => slot.stop());

const SERVERS = [
  { server: "PostgreSQL of the packages", skipped: !hasPostgres(), url: sharedPostgresUrl },
  { server: "PostgreSQL of the system", skipped: slot.skipped, url: () => slot.server.url },
];
const OPTIONS = { segmentMs: 1, retentionMs: 0 };
const TIMEOUT_MS = 180_000;
/** Every branch of the functions for writers in SQL, in a stream that no relay reads. */
const FROM_SQL = [
  `select txbox.enqueue_v1('sql', 't', '{"a":1}', key => 'ü世😀', aggregate_type => 'a', aggregate_id => 'b',
    headers => '{"correlationId":"c","causationPath":[["a","b"]],"contentType":"application/json"}')`,
  `select txbox.enqueue_v1('sql', 't', 'text', headers => '{"contentType":"text/plain"}', id => 'from-sql')`,
  "select txbox.enqueue_v1('sql', 't', ''::pg_catalog.bytea)",
  "select txbox.cancel_v1(txbox.enqueue_v1('sql', 't', '1', deliver_at => '9999-01-01'))",
];
const NOBODY = `mallory_${process.pid}`;

describe.each(SERVERS)("functions and operators of another role, $server", ({ skipped, url }) => {
  /** A pool that remembers the texts of its statements. */
  class Pool extends pg.Pool {
    readonly texts = new Set<string>();
    path: string | undefined;

    constructor(connectionString: string) {
      super({ connectionString, max: 10 });
      this.on("error", () => undefined);
      this.on("connect", (client) => {
        const query = client.query.bind(client) as (...args: unknown[]) => unknown;
        client.query = ((...args: unknown[]) => {
          const [first] = args as [string | { text?: string }];
          this.texts.add(typeof first === "string" ? first : (first.text ?? ""));
          return query(...args);
        }) as typeof client.query;
        if (this.path !== undefined) void client.query(`set search_path = ${this.path}`);
      });
    }
  }

  async function scene(run: (pools: { admin: pg.Pool; one: Pool; two: Pool }) => Promise<void>): Promise<void> {
    await using database = await createDatabase(url());
    const [admin, one, two] = [
      new pg.Pool({ connectionString: database.url }),
      new Pool(database.url),
      new Pool(database.url),
    ];
    admin.on("error", () => undefined);
    try {
      await admin.query(`create role ${NOBODY}`);
      await run({ admin, one, two });
    } finally {
      await admin.query(`drop owned by ${NOBODY} cascade; drop role ${NOBODY}`).catch(() => undefined);
      for (const pool of [one, two, admin]) await pool.end();
    }
  }

  /** From the tables of 0.1 on, so that every piece of the migrations runs by itself. */
  async function everything(one: Pool, two: Pool, whenChecked?: () => Promise<void>): Promise<void> {
    const [store, others] = [one, two].map((client) => createPostgresStore({ client, ...OPTIONS })) as [
      PoolStore,
      PoolStore,
    ];
    for (const { migrator } of [store, others])
      await expect(migrator.check()).rejects.toMatchObject({ code: "schema_missing" });
    await whenChecked?.();
    const names = postgresNames({ schema: "txbox", tablePrefix: "" });
    await createMigrator({ database: databaseOf(one), names, migrations: MIGRATIONS.slice(0, 1) }).migrate();
    expect(await store.migrator.pending()).toHaveLength(MIGRATIONS.length - 1);
    await store.migrator.migrate();
    await store.migrator.check();
    await one.query(store.grants({ writer: NOBODY, consumer: NOBODY, relay: NOBODY, maintainer: NOBODY }));
    await writeInEveryWay(one, store);
    for (const call of FROM_SQL) await one.query(call);
    await relayInEveryWay(store, others, ["s"]);
    await recoverInEveryWay(one, store, ["s"]);
    await consumeInEveryWay(store);
    await hang(store);
    for (let round = 0; round < 4; round++) await store.maintenance.run();
    await one.query("select * from txbox.about('k')");
    await store.rebase();
    await store.admin.drop("r");
  }

  let functions: string[] = [];

  it.skipIf(skipped)("are not there: everything works", { timeout: TIMEOUT_MS }, async () => {
    await scene(async ({ one, two }) => {
      await everything(one, two);
      const { rows } = await one.query<{ body: string }>(
        "select prosrc as body from pg_proc where pronamespace = 'txbox'::regnamespace",
      );
      functions = calledIn([...one.texts, ...two.texts, ...rows.map(({ body }) => body)]);
      expect(functions).toEqual(expect.arrayContaining(["clock_timestamp", "pg_snapshot_xmax", "hashtext", "unnest"]));
    });
  });

  /** `probe` falls into a trap under the path. */
  async function requireTraps(pool: Pool, probe: string): Promise<void> {
    await expect(pool.query(probe)).rejects.toThrow(SPRUNG);
  }

  /** Also for connections that are open already. */
  async function setPath(pools: readonly Pool[], path: string): Promise<void> {
    for (const pool of pools) {
      pool.path = path;
      const idle = await Promise.all(Array.from({ length: pool.idleCount }, () => pool.connect()));
      for (const client of idle) client.release(true);
    }
  }

  it.skipIf(skipped)("that fit better than PostgreSQL's own are never called", { timeout: TIMEOUT_MS }, () =>
    scene(async ({ admin, one, two }) => {
      expect(await setTraps(admin, NOBODY, { functions, operators: true })).toBeGreaterThan(500);
      await setPath([one, two], "evil");
      await requireTraps(one, "select to_timestamp(1::smallint)");
      await requireTraps(one, "select 1::bigint || 'x'::text");
      await everything(one, two);
    }),
  );

  it.skipIf(skipped)("that a later path puts before PostgreSQL's own are never called", { timeout: TIMEOUT_MS }, () =>
    scene(async ({ admin, one, two }) => {
      expect(await setTraps(admin, NOBODY, { functions, exact: true })).toBeGreaterThan(50);
      await everything(one, two, async () => {
        await setPath([one, two], "evil, pg_catalog");
        await requireTraps(one, "select clock_timestamp()");
      });
    }),
  );

  it.skipIf(skipped)("before PostgreSQL's own: only a writer goes on, and calls none", { timeout: TIMEOUT_MS }, () =>
    scene(async ({ admin, one, two }) => {
      await createPostgresStore({ client: admin }).migrator.migrate();
      await setTraps(admin, NOBODY, { functions, operators: true, types: true });
      await setPath([one, two], "evil, pg_catalog");
      await requireTraps(one, "select clock_timestamp()");
      await requireTraps(one, "select 'x'::text");
      const store = createPostgresStore({ client: one });
      await writeInEveryWay(one, store);
      for (const call of FROM_SQL) await one.query(call);
      await one.query("select * from txbox.about('k')");
      const inbox = createInbox({ store, consumer: "c" }).on("t", async () => undefined);
      const refused: [string, () => Promise<unknown>][] = [
        ["migrate", () => store.migrator.migrate()],
        ["pending", () => store.migrator.pending()],
        ["check", () => store.migrator.check()],
        ["relay", () => createRelay({ store, name: "r", publisher: publishEach(async () => undefined) }).start()],
        ["inbox", () => inbox.handle({ id: "1", type: "t", body: "1", headers: {} })],
        ["maintenance", () => store.maintenance.run()],
        ["relays", () => store.admin.relays()],
        ["pause", () => store.admin.pause("r")],
        ["rebase", () => store.rebase()],
      ];
      for (const [what, run] of refused) {
        await expect(run(), what).rejects.toMatchObject({
          code: "unsafe_search_path",
          message: expect.stringMatching(/evil before pg_catalog.*Leave pg_catalog out/),
        });
      }
    }),
  );
});
