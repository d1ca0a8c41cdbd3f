import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/postgres-store.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { captureCli, type Captured } from "../../support/captured-cli.ts";
import { INDEX_URL, type CliResult, projectFolder, runCli } from "../../support/run-cli.ts";

/** Clears the screen, sets its title, turns the direction of text, and begins a line of its own. */
const HOSTILE =
  "x\u001B[2J\u001B]0;title\u0007\u009B31m\u202Egnp.exe\u2066\u2028\r\n2026-01-01T00:00:00Z relay: all is well";
const RAW = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;

function expectHarmless({ stdout, stderr }: Pick<Captured, "stdout" | "stderr">): void {
  for (const text of [stdout, stderr]) {
    expect(text.replaceAll("\n", "")).not.toMatch(RAW);
    expect(text).not.toMatch(/^2026-01-01T00:00:00Z/m);
  }
}

describe.skipIf(!hasPostgres())("hostile names and texts", () => {
  let database: TestDatabase;
  let pool: pg.Pool;

  beforeAll(async () => {
    database = await testDatabase();
    pool = new pg.Pool({ connectionString: database.url, max: 3 });
    pool.on("error", () => undefined);
  });
  afterAll(async () => {
    await pool?.end();
    await database?.drop();
  });

  /** No API takes such a name, but a row of the database may have it. */
  async function rename(relay: string, to: string): Promise<void> {
    const client = await pool.connect();
    try {
      // Foreign keys would be in the way.
      await client.query("set session_replication_role = replica");
      await client.query("update txbox.relay set name = $2 where name = $1", [relay, to]);
      const { rows } = await client.query<{ table: string }>(
        `select table_name as table from information_schema.columns join information_schema.tables using (table_schema, table_name)
         where table_schema = 'txbox' and column_name = 'relay' and table_type = 'BASE TABLE'`,
      );
      for (const { table } of rows)
        await client.query(`update txbox.${table} set relay = $2 where relay = $1`, [relay, to]);
    } finally {
      client.release(true);
    }
  }

  test("reach neither terminal nor log as they are, and JSON as escapes without loss", async () => {
    const store = createPostgresStore({ client: pool });
    await store.migrator.migrate();
    const client = await pool.connect();
    await client.query("begin");
    const sent = {
      stream: HOSTILE,
      type: HOSTILE,
      key: HOSTILE,
      aggregateType: HOSTILE,
      aggregateId: HOSTILE,
      headers: { [HOSTILE]: HOSTILE },
      payload: { [HOSTILE]: HOSTILE },
    };
    const ids = [`1${HOSTILE}`, `2${HOSTILE}`];
    await createOutbox({ store }).enqueue(
      client,
      ids.map((id) => ({ ...sent, id })),
    );
    await client.query("commit");
    client.release();
    using folder = projectFolder({
      "txbox.config.ts": `
        import { defineConfig, UnavailableError } from ${JSON.stringify(INDEX_URL)};
        const hostile = ${JSON.stringify(HOSTILE)};
        let out = true;
        const dies = { publisher: { keepsKeyOrder: true, publish: async (messages) => {
          if (out) { out = false; throw new UnavailableError(hostile); }
          return messages.map(() => ({ status: "rejected", error: new Error(hostile) }));
        } }, onEvent: () => { throw new Error(hostile); } };
        export default defineConfig({
          relays: {
            dies,
            told: dies,
            fails: { publisher: () => { throw new Error(hostile); } },
          },
          close: () => { throw new Error(hostile); },
        });`,
    });
    const options = { cwd: folder.path, env: { DATABASE_URL: database.url } };
    const run = async (...args: string[]): Promise<CliResult> => {
      const result = await runCli(args, options);
      expectHarmless(result);
      return result;
    };
    const lines = (await run("relay", "dies", "--once")).stderr;
    for (const line of [
      "the target is out",
      "is dead",
      "TxboxWarning",
      "close() of the configuration did not end well",
    ])
      expect(lines).toContain(line);
    const events = (await run("relay", "told", "--once", "--json")).stdout.trimEnd().split("\n");
    const told = events.map((event) => JSON.parse(event) as { type: string; error?: string; id?: string });
    expect(told.find(({ type }) => type === "outage")?.error).toContain(HOSTILE);
    expect(told.filter(({ type }) => type === "dead").map(({ id }) => id)).toEqual(ids);
    await pool.query("delete from txbox.relay where name = 'told'");
    await rename("dies", `dies${HOSTILE}`);

    const { dead } = (await run("dead", "list", "--json")).json as { dead: Record<string, unknown>[] };
    const { payload, headers, key, stream, type, aggregateId } = sent;
    expect(dead).toHaveLength(2);
    expect(dead[0]).toMatchObject({ id: ids[0], payload, key, stream, type, aggregateId, relay: `dies${HOSTILE}` });
    expect(dead[0]?.["headers"]).toMatchObject(headers);
    expect(dead[0]?.["lastError"]).toContain(HOSTILE);

    const list = (await run("dead", "list")).stdout;
    expect(list.trimEnd().split("\n")).toHaveLength(4);
    expect(list).toContain("\\u001B[2J");
    const shown = (await run("dead", "show", ids[0]!)).stdout;
    expect(shown).toContain("\\u202E");
    expect(shown.split("\n").filter((line) => line.startsWith("key "))).toHaveLength(1);
    for (const args of [
      ["status"],
      ["status", "--json"],
      ["status", "--key", HOSTILE],
      ["status", "--id", ids[0]!, "--json"],
      ["status", "--relay", HOSTILE],
      ["find", "--status", "dead"],
      ["find", "--key", HOSTILE, "--json"],
      ["find", "--after", HOSTILE],
      ["story", ids[0]!],
      ["story", ids[0]!, "--json"],
      ["story", HOSTILE],
      ["dead", "show", HOSTILE],
      ["dead", "show", HOSTILE, "--json", "--verbose"],
      ["dead", "requeue", ids[0]!],
      ["dead", "discard", "--key", HOSTILE],
      ["relays", "list"],
      ["relays", "pause", `dies${HOSTILE}`],
      ["relays", "drop", `dies${HOSTILE}`],
      ["relays", "pause", HOSTILE],
      ["relay", HOSTILE, "--publisher", "stdout"],
      ["relay", HOSTILE],
      ["relay", "fails", "--verbose"],
      ["relay", "fails", "--json"],
      ["relay", "look", "--publisher", "stdout", "--once"],
      ["relay", "look2", "--publisher", "stdout", "--once", "--json"],
      ["migrate", "--schema", HOSTILE.slice(0, 20)],
      ["migrate", "--schema", "a\u001B[31mb", "--dry-run"],
      ["migrate", "--schema", "a\u001B[31mb", "--dry-run", "--json"],
      ["grants", "--writer", HOSTILE],
      ["grants", "--writer", HOSTILE, "--json"],
      [HOSTILE],
      ["status", HOSTILE],
      [`--${HOSTILE}`, "status"],
      ["status", "--limit", HOSTILE],
      ["--config", HOSTILE, "status"],
      ["status", "--database-url", HOSTILE],
      ["status", "--database-url", `postgres://127.0.0.1:1/${HOSTILE}`],
    ])
      expectHarmless(await captureCli(args, options));
  });

  test("a script is printed exactly or not at all", async () => {
    const schema = "a\u001B[31mb";
    const options = { env: { DATABASE_URL: database.url } };
    const plain = await runCli(["migrate", "--dry-run", "--schema", schema], options);
    expect(plain).toMatchObject({ code: 2, stdout: "" });
    const { pending } = (await runCli(["migrate", "--dry-run", "--schema", schema, "--json"], options)).json as {
      pending: { script: string }[];
    };
    expect(pending[0]?.script).toContain(`"${schema}"`);
  });
});

test("only the output prints", () => {
  const src = fileURLToPath(new URL("../../../src", import.meta.url));
  const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  const printing = files.filter((file) =>
    /process\.std(?:out|err)\.write|console\.|output: process\.stderr/.test(readFileSync(join(src, file), "utf8")),
  );
  // main.ts says that Node is too old, before the rest can be loaded; confirm.ts asks a question.
  expect(printing.toSorted()).toEqual([join("cli", "confirm.ts"), join("cli", "main.ts")]);
});
