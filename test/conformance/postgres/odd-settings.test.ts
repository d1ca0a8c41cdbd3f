import type { Pool } from "pg";
import { describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { MIGRATIONS } from "../../../src/stores/postgres/migrations/index.ts";
import { createMigrator } from "../../../src/stores/postgres/postgres-migrator.ts";
import { hasPostgres, sharedPostgresUrl, testDatabase } from "../../harness/shared-postgres.ts";
import { openDriver, storeParts } from "../../support/postgres-drivers.ts";
import { nodePostgres } from "../targets.ts";
import { postgresSuite, setDatabase } from "./postgres-suite.ts";

/** Each changes how values are read or written as text; all of them at once. */
const SETTINGS = {
  datestyle: "SQL, DMY",
  intervalstyle: "sql_standard",
  bytea_output: "escape",
  timezone: "Pacific/Chatham",
  standard_conforming_strings: "off",
  escape_string_warning: "off",
  array_nulls: "off",
  extra_float_digits: "-15",
  lc_monetary: "C",
  lc_numeric: "C",
  lc_time: "C",
  xmloption: "document",
  quote_all_identifiers: "on",
  search_path: "",
  row_security: "off",
  enable_partition_pruning: "off",
  plan_cache_mode: "force_generic_plan",
};

describe.skipIf(!hasPostgres())("a database with other settings than usual", () => {
  postgresSuite({ ...nodePostgres, id: "postgres-odd-settings" }, "node-postgres", sharedPostgresUrl, SETTINGS);

  it("has partitions of receipts by names that maintenance finds again", async () => {
    await using base = await testDatabase();
    await setDatabase(base, SETTINGS);
    const driver = openDriver("node-postgres", base.url, 2);
    const store = createPostgresStore({ client: driver.client });
    await store.migrator.migrate();
    for (let round = 0; round < 2; round++) await store.maintenance.run();
    const { rows } = (await (driver.client as Pool).query(
      "select relname from pg_class where relname like 'receipt\\_%' and relkind = 'r' order by 1",
    )) as { rows: { relname: string }[] };
    const days = rows.map(({ relname }) => relname).filter((name) => /\d/.test(name));
    expect(days.filter((name) => !/^receipt_\d{8}$/.test(name))).toEqual([]);
    expect(days.length).toBeGreaterThanOrEqual(3);
    await driver.close();
  });

  it("is upgraded piece by piece, under names that mean something in SQL", async () => {
    await using base = await testDatabase();
    await setDatabase(base, SETTINGS);
    const driver = openDriver("node-postgres", base.url, 2);
    const names = { schema: `o'x\\%s "txbox"."a" $`, tablePrefix: "p'\\%I$txbox" };
    const { database, names: quoted, migrator, inTransaction } = storeParts(driver, names);
    await createMigrator({ database, names: quoted, migrations: MIGRATIONS.slice(0, 1) }).migrate();
    const store = createPostgresStore({ client: driver.client, ...names });
    const outbox = createOutbox({ store });
    const enqueue = () =>
      inTransaction((tx) => outbox.enqueue(tx as never, { stream: "s", type: "t", key: "k", payload: 1 }));
    await enqueue();
    const titles = new Set<string>();
    await migrator.migrate({ onProgress: ({ title }) => titles.add(title) });
    expect([...titles]).toEqual(expect.arrayContaining(["dropping checks of the log", "indexing a segment"]));
    await migrator.check();
    await enqueue();
    expect((await store.admin.find({ key: "k" })).length).toBe(2);
    expect(await database.query(`select 1 from ${quoted.about}('k')`)).toHaveLength(2);
    await driver.close();
  });

  it("says that a name is taken: a function of the application", async () => {
    await using base = await testDatabase();
    const driver = openDriver("node-postgres", base.url, 1);
    const { database, migrator } = storeParts(driver);
    await database.exec("create schema txbox");
    await database.exec("create function txbox.about(id text) returns text language sql as 'select id'");
    await expect(migrator.migrate()).rejects.toMatchObject({ code: "invalid_option", field: "tablePrefix" });
    await driver.close();
  });
});
