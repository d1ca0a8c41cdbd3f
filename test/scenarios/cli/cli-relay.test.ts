import { readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/postgres-store.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { INDEX_URL, projectFolder, runCli, startCli } from "../../support/run-cli.ts";

interface Line {
  type: string;
  relay?: string;
  published?: number;
  message?: { key: string; position: string };
}

describe.skipIf(!hasPostgres())("txbox relay", () => {
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

  async function prepared(schema: string) {
    const store = createPostgresStore({ client: pool, schema });
    await store.migrator.migrate();
    const outbox = createOutbox({ store });
    const enqueue = async (...keys: string[]): Promise<void> => {
      const client = await pool.connect();
      await client.query("begin");
      await outbox.enqueue(
        client,
        keys.map((key, n) => ({ stream: "orders", type: "order_placed", key, payload: { n } })),
      );
      await client.query("commit");
      client.release();
    };
    return { store, enqueue, env: { DATABASE_URL: database.url, TXBOX_SCHEMA: schema } };
  }

  test("publishes to stdout as NDJSON and stops cleanly on SIGTERM", async () => {
    const { store, enqueue, env } = await prepared("out");
    await enqueue("a", "b");
    await using relay = startCli(["relay", "look", "--publisher", "stdout"], { env });
    await until(() => relay.stdout.length >= 2, { what: "two messages", timeoutMs: 60_000 });
    await enqueue("c");
    await relay.waitForLine('"key":"c"');
    expect(relay.stdout.map((line) => JSON.parse(line) as object)).toMatchObject([
      { position: "1", stream: "orders", type: "order_placed", key: "a", payload: { n: 0 } },
      { position: "2", key: "b" },
      { position: "3", key: "c" },
    ]);
    expect((await store.admin.relays())[0]?.lanes[0]?.owner).toMatch(/^look-/);
    relay.signal("SIGTERM");
    expect(await relay.waitForExit()).toEqual({ code: 0, signal: null });
    expect(relay.stderr.join("\n")).toContain("look: stopped");
    const [figures] = await store.admin.relays();
    expect(figures).toMatchObject({ published: 3n, pending: 0 });
    // The lanes were given back at once.
    expect(figures?.lanes.every(({ owner }) => owner === null)).toBe(true);
  });

  test("--json prints every event as NDJSON; SIGINT stops it too", async () => {
    const { enqueue, env } = await prepared("events");
    await enqueue("a");
    await using relay = startCli(["relay", "look", "--publisher", "stdout", "--json"], { env });
    await relay.waitForLine('"type":"batch"');
    relay.signal("SIGINT");
    expect(await relay.waitForExit()).toEqual({ code: 0, signal: null });
    const lines = relay.stdout.map((line) => JSON.parse(line) as Line);
    expect(lines.map(({ type }) => type)).toEqual(
      expect.arrayContaining(["started", "lanes", "message", "batch", "stopped"]),
    );
    expect(lines.find(({ type }) => type === "message")?.message).toMatchObject({ key: "a", position: "1" });
    expect(lines.at(-1)?.type).toBe("stopped");
  });

  test("--once drains and ends, within --max", async () => {
    const { store, enqueue, env } = await prepared("once");
    await enqueue("a", "b", "c", "d");
    const args = ["relay", "look", "--publisher", "stdout", "--once", "--json"];
    const first = await runCli([...args, "--max", "2", "--batch-size", "2", "--deadline-ms", "20000"], { env });
    expect(first.code, first.stderr).toBe(0);
    const last = JSON.parse(first.stdout.trim().split("\n").at(-1)!) as Line;
    expect(last).toMatchObject({ type: "drained", relay: "look", published: 2, retried: 0, dead: 0 });
    const second = await runCli(args, { env });
    expect(JSON.parse(second.stdout.trim().split("\n").at(-1)!)).toMatchObject({ published: 2 });
    expect((await store.admin.relays())[0]).toMatchObject({ published: 4n, pending: 0 });
  });

  test("runs relays of a TypeScript configuration by name, with a factory and hooks", async () => {
    const { enqueue, env } = await prepared("conf");
    await enqueue("a", "b");
    using folder = projectFolder({
      "txbox.config.ts": `
        import { appendFileSync } from "node:fs";
        import { defineConfig, type Publisher } from ${JSON.stringify(INDEX_URL)};
        const note = (file: string) => (): Publisher => ({
          keepsKeyOrder: true,
          publish: async (messages) => {
            for (const { key } of messages) appendFileSync(file, key + "\\n");
            return messages.map(() => ({ status: "published" as const }));
          },
          close: async () => appendFileSync(file, "closed\\n"),
        });
        export default defineConfig({
          database: { url: "postgres://nobody@127.0.0.1:1/none", schema: "not_this_one" },
          relays: { first: { publisher: note("first.txt"), batchSize: 1 }, second: { publisher: note("second.txt") } },
          close: () => appendFileSync("closed.txt", "yes"),
        });`,
    });
    const read = (name: string): string => readFileSync(join(folder.path, name), "utf8");
    const cwd = folder.path;
    const once = await runCli(["relay", "first", "--once"], { cwd, env });
    expect(once.code, once.stderr).toBe(0);
    expect(read("first.txt")).toBe("a\nb\nclosed\n");
    expect(read("closed.txt")).toBe("yes");

    expect((await runCli(["relay"], { cwd, env })).stderr).toContain("Which relay? first, second, or --all");
    expect((await runCli(["relay", "secnd"], { cwd, env })).stderr).toContain('Did you mean "second"?');

    await using all = startCli(["relay", "--all", "--json"], { cwd, env });
    await all.waitForLine(/"relay":"second".*"type":"batch"|"type":"batch".*"relay":"second"/);
    all.signal("SIGTERM");
    expect(await all.waitForExit()).toEqual({ code: 0, signal: null });
    expect(read("second.txt")).toBe("a\nb\nclosed\n");
  });

  test("takes a store that the configuration built", async () => {
    const { enqueue } = await prepared("own");
    await enqueue("a");
    using folder = projectFolder({
      "txbox.config.mjs": `
        import pg from ${JSON.stringify(import.meta.resolve("pg"))};
        import { createPostgresStore } from ${JSON.stringify(new URL("../../../src/stores/postgres/index.ts", import.meta.url).href)};
        const pool = new pg.Pool({ connectionString: process.env.MY_URL });
        export default { store: () => createPostgresStore({ client: pool, schema: "own" }), close: () => pool.end() };`,
    });
    const env = { MY_URL: database.url, DATABASE_URL: "postgres://nobody@127.0.0.1:1/none" };
    const { code, stdout, stderr } = await runCli(["status", "--key", "a", "--json"], { cwd: folder.path, env });
    expect(code, stderr).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ messages: [{ key: "a", status: "pending" }] });
    // A flag wins over it.
    const elsewhere = ["--database-url", "postgres://nobody@127.0.0.1:1/none"];
    expect(await runCli(["status", ...elsewhere], { cwd: folder.path, env })).toMatchObject({ code: 4 });
  });

  test("ends with 1 when its relay is dropped", async () => {
    const { store, env } = await prepared("gone");
    await using relay = startCli(["relay", "look", "--publisher", "stdout", "--json", "--lease-ms", "1000"], { env });
    await relay.waitForLine('"type":"lanes"');
    await store.admin.drop("look");
    expect(await relay.waitForExit()).toEqual({ code: 1, signal: null });
    expect(relay.stdout.join("\n")).toContain('"type":"failed"');
  });

  test("gives up a publisher that does not end within --stop-deadline-ms", async () => {
    const { enqueue, env } = await prepared("stuck");
    await enqueue("a");
    using folder = projectFolder({
      "txbox.config.mjs": `export default { relays: { stuck: { publisher: { keepsKeyOrder: true, publish: () => {
        process.stderr.write("");
        console.log("publishing");
        return new Promise((resolve) => setTimeout(resolve, 1e6));
      } } } } };`,
    });
    await using relay = startCli(["relay", "--stop-deadline-ms", "300"], { cwd: folder.path, env });
    await relay.waitForLine("publishing");
    const signalledAt = performance.now();
    relay.signal("SIGTERM");
    expect(await relay.waitForExit()).toEqual({ code: 1, signal: null });
    expect(performance.now() - signalledAt).toBeLessThan(10_000);
    expect(relay.stderr.join("\n")).toContain("longer than 300 ms");
  });
});
