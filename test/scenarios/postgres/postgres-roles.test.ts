import { readFileSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createRelay } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { consumeInEveryWay, relayInEveryWay, writeInEveryWay, type PoolStore } from "../support/whole-scene.ts";

const DOCS = new URL("../../../docs/stores/postgres.md", import.meta.url);
/** No right, and what cannot be done to a view. */
const REFUSED: ReadonlySet<string> = new Set(["42501", "55000", "42809"]);
const suffix = `_${process.pid}`;
const PARTS = ["writer", "consumer", "relay"] as const;
const ROLES = {
  writer: `w${suffix}`,
  consumer: `c${suffix}`,
  relay: `r${suffix}`,
  maintainer: `m${suffix}`,
  viewer: `v${suffix}`,
};

interface Relation {
  name: string;
  kind: string;
  columns: { name: string; type: string; identity: boolean }[];
}

describe.skipIf(!hasPostgres())("the roles of grants", () => {
  let base: TestDatabase;
  let admin: pg.Pool;
  const pools: pg.Pool[] = [];

  beforeAll(async () => {
    base = await testDatabase();
    admin = new pg.Pool({ connectionString: base.url });
    const store = createPostgresStore({ client: admin });
    await store.migrator.migrate();
    for (const role of Object.values(ROLES)) await admin.query(`create role ${role} login`);
    await admin.query(store.grants(ROLES));
  });
  afterAll(async () => {
    for (const pool of pools) await pool.end();
    for (const role of Object.values(ROLES)) await admin.query(`drop owned by ${role}; drop role ${role}`);
    await admin.end();
    await base.drop();
  });

  function as(part: keyof typeof ROLES): { pool: pg.Pool; store: PoolStore } {
    const url = new URL(base.url);
    url.username = ROLES[part];
    const pool = new pg.Pool({ connectionString: url.href });
    pools.push(pool);
    return { pool, store: createPostgresStore({ client: pool, segmentMs: 1, retentionMs: 0 }) };
  }

  /** Tables, views and sequences, but for partitions: those have no rights of their own. */
  async function relations(): Promise<Relation[]> {
    const { rows } = await admin.query<Relation>(`
      select c.relname as name, c.relkind::text as kind, coalesce(json_agg(json_build_object('name', a.attname,
          'type', format_type(a.atttypid, a.atttypmod), 'identity', a.attidentity <> '') order by a.attnum), '[]') as columns
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where c.relnamespace = 'txbox'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and not c.relispartition group by c.oid order by 1`);
    return rows;
  }

  /** Tries statements in a transaction that is rolled back; whether the role may run it, be there a reason not to. */
  async function tryAs(part: keyof typeof ROLES, run: (may: (sql: string) => Promise<boolean>) => Promise<void>) {
    const client = await as(part).pool.connect();
    await client.query("begin");
    await run(async (sql) => {
      await client.query("savepoint before");
      try {
        await client.query(sql);
        return true;
      } catch (error) {
        return !REFUSED.has((error as { code: string }).code);
      } finally {
        await client.query("rollback to savepoint before");
      }
    });
    await client.query("rollback");
    client.release();
  }

  /** "select, insert (a, b)": what a role may do to a table, column by column. */
  async function rightsOn({ name, columns }: Relation, may: (sql: string) => Promise<boolean>): Promise<string> {
    const table = `txbox.${name}`;
    const rights: string[] = [];
    const some = async (word: string, sql: (column: Relation["columns"][number]) => string) => {
      const allowed: string[] = [];
      for (const column of columns) if (await may(sql(column))) allowed.push(column.name);
      if (allowed.length === columns.length) rights.push(word);
      else if (allowed.length > 0) rights.push(`${word} (${allowed.join(", ")})`);
    };
    await some("select", (column) => `select "${column.name}" from ${table} limit 0`);
    await some(
      "insert",
      ({ name: column, type }) =>
        `insert into ${table} ("${column}") overriding system value select null::${type} where false`,
    );
    await some("update", (column) => `update ${table} set "${column.name}" = default where false`);
    if (await may(`delete from ${table} where false`)) rights.push("delete");
    if (await may(`truncate ${table}`)) rights.push("truncate");
    if (await may(`create trigger t before insert on ${table} execute function suppress_redundant_updates_trigger()`))
      rights.push("trigger");
    if (await may(`lock table ${table} in access exclusive mode`)) rights.push("lock");
    return rights.join(", ");
  }

  /** The table of the docs: relation → part → rights. */
  function documented(): Map<string, Record<string, string>> {
    const [, section] = readFileSync(DOCS, "utf8").split("<!-- rights -->");
    const rows = section!.split("\n").filter((line) => line.startsWith("| `"));
    const found = new Map<string, Record<string, string>>();
    for (const row of rows) {
      const [names, ...rights] = row
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim());
      const byPart = Object.fromEntries(PARTS.map((part, i) => [part, rights[i]!]));
      for (const [, name] of names!.matchAll(/`(\w+)`/g)) found.set(name!, byPart);
    }
    return found;
  }

  it("may do to each table, view and sequence what the docs say, and nothing else", { timeout: 120_000 }, async () => {
    const expected = documented();
    const found = new Map<string, Record<string, string>>();
    const all = await relations();
    for (const part of PARTS) {
      await tryAs(part, async (may) => {
        for (const relation of all) {
          const sequence = `'txbox.${relation.name}'`;
          const rights =
            relation.kind === "S"
              ? [
                  ...((await may(`select last_value from txbox.${relation.name}`)) ? ["select"] : []),
                  ...((await may(`select nextval(${sequence})`)) ? ["usage"] : []),
                  ...((await may(`select setval(${sequence}, 1)`)) ? ["update"] : []),
                ].join(", ")
              : await rightsOn(relation, may);
          found.set(relation.name, { ...found.get(relation.name), [part]: rights });
        }
      });
    }
    const written = expandMessageColumns(Object.fromEntries(expected));
    expect(mapped(Object.fromEntries(found), sorted)).toEqual(written);
  });

  it("a viewer reads every table and view, and does nothing else", { timeout: 120_000 }, async () => {
    const all = await relations();
    await tryAs("viewer", async (may) => {
      for (const relation of all) {
        const isSequence = relation.kind === "S";
        const rights = isSequence
          ? await may(`select nextval('txbox.${relation.name}')`)
          : await rightsOn(relation, may);
        expect([relation.name, rights]).toEqual([relation.name, isSequence ? false : "select"]);
      }
    });
    const { admin: look } = as("viewer").store;
    await createRelay({ store: as("relay").store, name: "seen", publisher: createMemoryPublisher() }).drainOnce();
    const messages = [{ id: "x", createdAt: new Date() }];
    const since = new Date(Date.now() - 1000);
    const looks: (() => Promise<unknown>)[] = [
      () => look.find({ key: "k" }),
      () => look.search({}),
      () => look.search({ key: "k", status: "dead", since }),
      () => look.search({ status: "dead" }),
      () => look.search({ status: "retrying" }),
      () => look.search({ status: "scheduled" }),
      () => look.waiting({ relay: "seen", stream: "s", key: "k" }),
      () => look.rewindPreview("seen", "earliest"),
      () => look.relays(),
      () => look.figures(),
      () => look.samples({ since }),
      () => look.blocked({}),
      () => look.dead({}),
      () => look.sent({ relay: "seen", since, until: new Date() }),
      () => look.receipts({ consumer: "c", messages }),
      () => look.receiptsOf(messages),
      () => look.consumers(),
    ];
    for (const call of looks) await expect(call(), String(call)).resolves.toBeDefined();
    for (const call of [
      () => look.pause("seen"),
      () => look.resume("seen"),
      () => look.rewind("seen", "now"),
      () => look.drop("seen"),
      () => look.requeue({ all: true }),
      () => look.discard({ all: true }),
    ])
      await expect(call(), String(call)).rejects.toThrow(/permission denied/);
    await as("relay").store.admin.drop("seen");
  });

  it("may create nothing and reach no partition", async () => {
    for (const part of PARTS) {
      await tryAs(part, async (may) => {
        for (const sql of [
          "create table txbox.mine ()",
          "create function txbox.mine() returns int language sql as 'select 1'",
          "select 1 from txbox.message_0",
          "insert into txbox.message_0 (size, lane, id, stream, type) select 1, 1::smallint, 'x', 's', 't' where false",
          "delete from txbox.receipt_foreign",
          "alter table txbox.message add column mine text",
          "drop table txbox.scheduled",
          "create or replace procedure txbox.enqueue(id text) language sql as ''",
        ])
          expect([part, sql, await may(sql)]).toEqual([part, sql, false]);
      });
    }
  });

  it("may refer to no column, and maintain no table", async () => {
    const { rows } = await admin.query(
      `select c.relname, r.rolname from pg_class c, pg_roles r
       where c.relnamespace = 'txbox'::regnamespace and c.relkind in ('r', 'p') and r.rolname = any ($1)
         and (has_any_column_privilege(r.oid, c.oid, 'references')
           or current_setting('server_version_num')::int >= 170000 and has_table_privilege(r.oid, c.oid, 'maintain'))`,
      [PARTS.map((part) => ROLES[part])],
    );
    expect(rows).toEqual([]);
  });

  it("call routines with their own rights", async () => {
    const { rows } = await admin.query<{ name: string }>(
      "select proname as name from pg_proc where pronamespace = 'txbox'::regnamespace and prosecdef",
    );
    expect(rows).toEqual([]);
  });

  it("are enough for their work", { timeout: 60_000 }, async () => {
    const writer = as("writer");
    await writer.store.migrator.check();
    await writeInEveryWay(writer.pool, writer.store);
    await relayInEveryWay(as("relay").store, as("relay").store, ["s"]);
    await consumeInEveryWay(as("consumer").store);
    const { store } = as("maintainer");
    await store.migrator.migrate();
    for (let round = 0; round < 3; round++) await store.maintenance.run();
    expect((await as("relay").store.admin.find({ key: "bad" })).length).toBeLessThan(2);
    await as("relay").store.admin.drop("r");
  });
});

/** The docs write "message columns" for those of a message, and "–" for nothing. Columns in the order of the alphabet. */
function expandMessageColumns(table: Record<string, Record<string, string>>): Record<string, Record<string, string>> {
  const columns =
    "size, lane, id, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body";
  const expand = (rights: string) => sorted(rights.replace("–", "").replace("message columns", columns));
  return mapped(table, expand);
}

function sorted(rights: string): string {
  return rights.replaceAll(/\(([^)]*)\)/g, (_, columns: string) => `(${columns.split(", ").toSorted().join(", ")})`);
}

function mapped(table: Record<string, Record<string, string>>, change: (rights: string) => string): typeof table {
  const row = (rights: Record<string, string>) =>
    Object.fromEntries(Object.entries(rights).map(([part, text]) => [part, change(text)]));
  return Object.fromEntries(Object.entries(table).map(([name, rights]) => [name, row(rights)]));
}
