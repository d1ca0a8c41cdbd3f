import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { MIGRATIONS } from "../../src/stores/postgres/migrations/index.ts";
import { createMigrator } from "../../src/stores/postgres/postgres-migrator.ts";
import { serverOrSkip, spawnNode, startPgBouncer, startPostgres, type TestDatabase, until } from "../harness/index.ts";
import { hasPostgres, testDatabase } from "../harness/shared-postgres.ts";
import { openDriver, storeParts, type DriverName } from "../support/postgres-drivers.ts";

const ODD = { schema: 'Tx "box" ü', tablePrefix: "my'Pre.fix$1_" };

describe.skipIf(!hasPostgres())("migrator", () => {
  let base: TestDatabase;

  beforeAll(async () => {
    base = await testDatabase();
  });
  afterAll(() => base.drop());

  describe.each<DriverName>(["node-postgres", "postgres.js", "PGlite"])("on %s", (name) => {
    it("goes from nothing to checked, and then has nothing to do", async () => {
      const driver = openDriver(name, base.url);
      for (const names of [{ schema: `m_${name}` }, { ...ODD, schema: ODD.schema + name }]) {
        const { migrator } = storeParts(driver, names);
        await expect(migrator.check()).rejects.toMatchObject({
          code: "schema_missing",
          fix: expect.stringContaining("txbox migrate"),
        });
        const pending = await migrator.pending();
        expect(pending.map(({ version }) => version)).toEqual(MIGRATIONS.map(({ version }) => version));
        expect((await migrator.migrate()).map(({ version }) => version)).toEqual(pending.map(({ version }) => version));
        await migrator.check();
        expect(await migrator.pending()).toEqual([]);
        expect(await migrator.migrate()).toEqual([]);
      }
      await driver.close();
    });
  });

  it("is raced by ten pools, in one schema and with two prefixes", async () => {
    const drivers = Array.from({ length: 10 }, () => openDriver("node-postgres", base.url, 1));
    const done = await Promise.all(
      drivers.map((driver, i) =>
        storeParts(driver, { schema: "raced", tablePrefix: i % 2 === 0 ? "a_" : "b_" }).migrator.migrate(),
      ),
    );
    expect(done.filter((steps) => steps.length > 0).length).toBe(2);
    await Promise.all(drivers.map((driver) => driver.close()));
  });

  it("is raced by processes", async () => {
    const file = fileURLToPath(new URL("../support/migrate-process.ts", import.meta.url));
    const children = Array.from({ length: 4 }, () => spawnNode(file, [base.url, "raced by processes"]));
    const exits = await Promise.all(children.map((child) => child.waitForExit()));
    expect(exits.map(({ code }) => code)).toEqual([0, 0, 0, 0]);
    expect(children.filter(({ stdout }) => !stdout.includes("applied 0")).length).toBe(1);
  });

  it("works through PgBouncer in transaction mode", async ({ skip }) => {
    const slot = await serverOrSkip("PgBouncer", () => startPgBouncer({ postgresUrl: base.url }));
    skip(slot.skipped, slot.reason);
    const driver = openDriver("node-postgres", slot.server.url);
    const { migrator } = storeParts(driver, { schema: "bounced" });
    await migrator.migrate();
    await migrator.check();
    await driver.close();
    await slot.stop();
  });

  it("takes names that look like its own defaults, and refuses those that would end a function body", async () => {
    const driver = openDriver("node-postgres", base.url, 1);
    for (const names of [{ schema: '"txbox"' }, { schema: 'a"txbox"."message"', tablePrefix: '"txbox"' }]) {
      const { migrator } = storeParts(driver, names);
      await migrator.migrate();
      await migrator.check();
    }
    for (const [option, names] of Object.entries({
      schema: { schema: "x$txbox_enqueue$" },
      tablePrefix: { tablePrefix: "$txbox_settle$" },
    })) {
      expect(() => storeParts(driver, names)).toThrow(
        expect.objectContaining({ code: "invalid_option", field: option }),
      );
    }
    await driver.close();
  });

  it.each(["all_", "kept_"])(
    "says that a name is taken: two installations, one with the prefix %s",
    async (tablePrefix) => {
      const driver = openDriver("node-postgres", base.url, 1);
      const refusal = {
        code: "invalid_option",
        field: "tablePrefix",
        fix: expect.stringContaining("schema of its own"),
      };
      for (const [first, second] of [
        ["", tablePrefix],
        [tablePrefix, ""],
      ] as const) {
        const schema = `taken_${first || "none"}_${tablePrefix}`;
        await storeParts(driver, { schema, tablePrefix: first }).migrator.migrate();
        const { migrator } = storeParts(driver, { schema, tablePrefix: second });
        await expect(migrator.migrate()).rejects.toMatchObject(refusal);
        // The first is as it was.
        await storeParts(driver, { schema, tablePrefix: first }).migrator.check();
      }
      await driver.close();
    },
  );

  it("refuses an older and a newer schema", async () => {
    const driver = openDriver("node-postgres", base.url);
    const store = storeParts(driver, { schema: "versions" });
    await store.migrator.migrate();
    await store.database.query(`insert into ${store.names.migration} (version, name) values (9999, 'later')`);
    const refusal = { code: "schema_too_new", fix: expect.stringContaining("Upgrade") };
    await expect(store.migrator.check()).rejects.toMatchObject(refusal);
    await expect(store.migrator.migrate()).rejects.toMatchObject(refusal);
    await expect(store.migrator.pending()).rejects.toMatchObject(refusal);
    await store.database.query(`delete from ${store.names.migration} where version = 9999`);

    const more = 'create table "txbox"."more" (id int); insert into "txbox"."more" values (1);';
    const migrations = [...MIGRATIONS, { version: 9000, name: "more", sql: more }];
    const newer = createMigrator({ database: store.database, names: store.names, migrations });
    await expect(newer.check()).rejects.toMatchObject({
      code: "schema_outdated",
      fix: expect.stringContaining("txbox migrate"),
    });
    expect((await newer.migrate()).map(({ name }) => name)).toEqual(["more"]);
    await newer.check();
    expect(await store.database.query(`select * from ${store.names.of("more")}`)).toEqual([["1"]]);
    await driver.close();
  });

  it("applies all of what is pending or nothing", async () => {
    const driver = openDriver("node-postgres", base.url);
    const { database, names } = storeParts(driver, { schema: "half" });
    const migrations = [
      { version: 1, name: "good", sql: 'create table "txbox"."good" ();' },
      { version: 2, name: "bad", sql: "select nonsense;" },
    ];
    const migrator = createMigrator({ database, names, migrations });
    await expect(migrator.migrate()).rejects.toThrow("nonsense");
    await expect(migrator.check()).rejects.toMatchObject({ code: "schema_missing" });
    expect(await database.query("select to_regnamespace('half')")).toEqual([[null]]);
    await driver.close();
  });

  it("gives SQL that is complete when run by hand", async () => {
    const driver = openDriver("node-postgres", base.url);
    const { database, migrator } = storeParts(driver, { ...ODD, schema: "by hand" });
    for (const { script } of await migrator.pending()) await database.exec(script);
    await migrator.check();
    await driver.close();
  });

  it("refuses a lane that no relay would read", async () => {
    const driver = openDriver("node-postgres", base.url);
    const { database, migrator, names } = storeParts(driver, { schema: "lanes" });
    await migrator.migrate();
    const call = (lane: number) =>
      database.exec(
        `call ${names.enqueue}('m${lane}', 1, ${lane}::smallint, 's', 't', null, null, null, null, null, '1', null)`,
      );
    await call(0);
    await call(63);
    await expect(call(64)).rejects.toMatchObject({ code: "23502", column: "lane" });
    await expect(call(-1)).rejects.toMatchObject({ code: "23502", column: "lane" });
    expect(await database.query(`select count(*) from ${names.message}`)).toEqual([["2"]]);
    await driver.close();
  });

  it("tells what it is doing to a schema in use, and takes no harm from a listener that throws", async () => {
    const driver = openDriver("node-postgres", base.url);
    const { database, names } = storeParts(driver, { schema: "told" });
    const first = {
      version: 1,
      name: "first",
      sql: 'create table "txbox"."log" (n int); insert into "txbox"."log" values (1), (2);',
    };
    await createMigrator({ database, names, migrations: [first] }).migrate();
    const left = 'select count(*) from "txbox"."log"';
    const pieces = [
      { title: "emptying", sql: 'delete from "txbox"."log" where n = (select min(n) from "txbox"."log");', left },
      { title: "noting", sql: 'create table "txbox"."noted" ();' },
    ];
    const migrations = [first, { version: 2, name: "second", pieces }];
    const told: string[] = [];
    const applied = await createMigrator({ database, names, migrations }).migrate({
      onProgress({ version, title, left: runs }) {
        told.push(`${version} ${title} ${runs}`);
        throw new Error("a listener at fault");
      },
    });
    expect(told).toEqual(["2 emptying 2", "2 emptying 1", "2 noting 1"]);
    expect(applied.map(({ name }) => name)).toEqual(["second"]);
    await driver.close();
  });

  it("gets past an automatic vacuum of a large segment", { timeout: 120_000 }, async () => {
    const server = await startPostgres({ owned: true, settings: { autovacuum_naptime: "1s" } });
    try {
      const driver = openDriver("node-postgres", server.url);
      const { database, names } = storeParts(driver);
      await createMigrator({ database, names, migrations: MIGRATIONS.slice(0, 13) }).migrate();
      const query = (sql: string) => database.query(sql);
      await query(`alter table txbox.message_0 set (autovacuum_vacuum_insert_threshold = 100,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)`);
      await query(`insert into txbox.message (id, size, lane, stream, type, key, payload)
        select gen_random_uuid()::text, 10, 1, 'orders', 'made', 'k', 'null' from generate_series(1, 20000) g`);
      const vacuums = () =>
        query(
          "select 1 from pg_stat_progress_vacuum where relid = 'txbox.message_0'::regclass and heap_blks_total > 0",
        );
      await until(async () => (await vacuums()).length > 0, { what: "the vacuum", timeoutMs: 20_000 });
      const steps = await createMigrator({ database, names }).migrate();
      expect(steps.map(({ name }) => name)).toContain("look_ups_by_place");
      expect(await query("select * from txbox.about('k') limit 3")).toHaveLength(3);
      await driver.close();
    } finally {
      await server.stop();
    }
  });

  it("needs no right to create schemas when its schema is there", async () => {
    const driver = openDriver("node-postgres", base.url);
    const { database } = storeParts(driver);
    await database.exec("create role m_plain login; create schema given authorization m_plain");
    const url = new URL(base.url);
    url.username = "m_plain";
    const plain = openDriver("node-postgres", url.href);
    const { migrator } = storeParts(plain, { schema: "given" });
    await migrator.migrate();
    await migrator.check();
    await plain.close();
    await database.exec("drop schema given cascade; drop role m_plain");
    await driver.close();
  });
});
