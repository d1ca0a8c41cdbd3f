import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { MigrationProgress } from "../../src/core/contracts.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { MIGRATIONS } from "../../src/stores/postgres/migrations/index.ts";
import { spawnNode, until, type TestDatabase } from "../harness/index.ts";
import { hasPostgres, testDatabase } from "../harness/shared-postgres.ts";
import { watchWriterWaits } from "../support/lock-waits.ts";
import { fillAs01, migrateAs01, startRelayAs01, startWriterAs01 } from "../support/release-0.1.ts";
import { schemaFingerprint } from "../support/schema-fingerprint.ts";
import { isLong } from "../support/is-long.ts";

const MESSAGES = isLong ? 1_000_000 : 20_000;
const TIMEOUT_MS = isLong ? 600_000 : 120_000;
const PROCESS = fileURLToPath(new URL("../support/migrate-process.ts", import.meta.url));

const TITLES = MIGRATIONS.flatMap((migration) =>
  "pieces" in migration ? migration.pieces.map(({ title }) => title) : [],
);
/** Every third piece, and the youngest; all of them in long runs. */
const KILLED_AT = TITLES.filter((_, n) => isLong || n % 3 === 0 || n >= TITLES.length - 2);
/** No writer may wait longer for the upgrade. */
const MAX_WAIT_MS = 1000;
/** So long writers run beforehand: how long their transactions take on this machine anyhow. */
const CONTROL_MS = 5000;

/** What must be there afterwards as it was before. */
const KEPT = `select (select md5(string_agg((to_jsonb(b) - 'since')::text, '' order by b.position)) from txbox.blocked b),
  (select md5(string_agg(p::text, '' order by p.position)) from txbox.parked p),
  (select md5(string_agg((to_jsonb(d) - 'error_group' - 'grouped_at')::text, '' order by d.position)) from txbox.dead d),
  (select md5(string_agg(r::text, '' order by r.message_id)) from txbox.receipt r)`;

describe.skipIf(!hasPostgres())("upgrade from 0.1", () => {
  let database: TestDatabase;
  let pool: pg.Pool;

  beforeEach(async () => {
    database = await testDatabase();
    pool = new pg.Pool({ connectionString: database.url, max: 4 });
    pool.on("error", () => undefined);
    await migrateAs01(pool);
  });
  afterEach(async () => {
    await pool.end();
    await database.drop();
  });

  async function freshFingerprint(): Promise<string[]> {
    await using fresh = await testDatabase();
    const own = new pg.Pool({ connectionString: fresh.url, max: 1 });
    await createPostgresStore({ client: own }).migrator.migrate();
    const lines = await schemaFingerprint(own);
    await own.end();
    return lines;
  }

  it(
    "holds up no writer, loses nothing, and lets writers and relays of 0.1 go on",
    { timeout: TIMEOUT_MS },
    async () => {
      await fillAs01(pool, MESSAGES);
      const before = await pool.query({ text: KEPT, rowMode: "array" });
      const writers = Array.from({ length: 4 }, () => startWriterAs01(database.url));
      const relay = startRelayAs01(database.url);
      await until(() => writers.every(({ committed }) => committed.length > 20), {
        what: "writers",
        timeoutMs: 60_000,
      });
      await new Promise((resolve) => setTimeout(resolve, CONTROL_MS));
      const longest = () => Math.max(...writers.map((writer) => writer.longestMs));
      const controlMs = longest();
      const waits = await watchWriterWaits(database.url);

      const store = createPostgresStore({ client: pool });
      const progress: MigrationProgress[] = [];
      const started = performance.now();
      const applied = await store.migrator.migrate({ onProgress: (step) => progress.push(step) });
      const tookMs = performance.now() - started;
      await store.migrator.check();
      expect(applied.map(({ version }) => version)).toContain(4);
      expect(progress.map(({ title }) => title)).toContain("indexing a segment");

      // They go on against the newer schema.
      const afterwards = writers.map(({ committed }) => committed.length);
      await until(() => writers.every(({ committed }, i) => committed.length > afterwards[i]! + 20), {
        what: "writers after the upgrade",
        timeoutMs: 60_000,
      });
      await Promise.all([...writers.map((writer) => writer.stop()), waits.stop()]);
      await relay.drain();

      expect(writers.flatMap(({ errors }) => errors)).toEqual([]);
      expect(relay.errors).toEqual([]);
      const [all, control, took] = [longest(), controlMs, tookMs].map((ms) => ms.toFixed(0));
      const figures = `longest wait for a lock ${waits.longestMs.toFixed(0)} ms, longest transaction ${all} ms (before: ${control} ms), upgrade ${took} ms`;
      if (isLong) process.stdout.write(`${figures}\n`);
      expect(waits.longestMs, figures).toBeLessThan(MAX_WAIT_MS);
      // A machine on which transactions take that long by themselves says nothing about the upgrade.
      expect(longest(), figures).toBeLessThan(MAX_WAIT_MS + controlMs);

      const sent = writers.flatMap(({ committed }) => committed);
      const { rows } = await pool.query<{ count: string }>("select count(*) from txbox.message");
      expect(Number(rows[0]!.count)).toBe(MESSAGES + sent.length);
      expect(relay.published).toHaveLength(MESSAGES + sent.length);
      const published = new Set(relay.published);
      expect(sent.filter((id) => !published.has(id))).toEqual([]);
      expect((await pool.query({ text: KEPT, rowMode: "array" })).rows).toEqual(before.rows);

      // Old and new messages are found.
      expect(await store.admin.find({ key: "k-9", limit: 5 })).toHaveLength(5);
      expect((await store.admin.find({ aggregateId: "a-77" })).length).toBeGreaterThan(0);
      expect((await store.admin.find({ correlationId: "c-7" })).length).toBeGreaterThan(0);
      expect(await store.admin.find({ id: sent.at(-1)! })).toHaveLength(1);
      expect(await schemaFingerprint(pool)).toEqual(await freshFingerprint());
    },
  );

  it(
    "waits for an old transaction that may still write to a segment, and loses nothing of it",
    { timeout: TIMEOUT_MS },
    async () => {
      await fillAs01(pool, 2000);
      const late = await pool.connect();
      await late.query("begin");
      await late.query(
        `call "txbox"."enqueue"('late-1', 20, 7::smallint, 'orders', 'created', 'k', null, null, null, null, '1', null)`,
      );
      const store = createPostgresStore({ client: pool });
      const titles: string[] = [];
      const migrating = store.migrator.migrate({ onProgress: ({ title }) => titles.push(title) });
      await until(() => titles.length > 0, { what: "the migration to begin", timeoutMs: 60_000 });
      // Others write meanwhile, though the migration needs locks on the log.
      const waits = await watchWriterWaits(database.url);
      const writer = startWriterAs01(database.url);
      await new Promise((resolve) => setTimeout(resolve, 3000));
      await Promise.all([writer.stop(), waits.stop()]);
      // They do queue behind it, and never for long.
      expect(waits.longestMs).toBeGreaterThan(20);
      expect(waits.longestMs).toBeLessThan(MAX_WAIT_MS);
      expect(writer.errors).toEqual([]);
      process.stdout.write(
        isLong
          ? `behind an old transaction: longest wait for a lock ${waits.longestMs.toFixed(0)} ms, longest transaction ${writer.longestMs.toFixed(0)} ms\n`
          : "",
      );
      expect(writer.committed.length).toBeGreaterThan(20);
      await late.query(
        `call "txbox"."enqueue"('late-2', 20, 7::smallint, 'orders', 'created', 'k', null, null, null, null, '1', null)`,
      );
      await late.query("commit");
      late.release();
      await migrating;
      expect(await store.admin.find({ key: "k" })).toHaveLength(2);
      expect(await schemaFingerprint(pool)).toEqual(await freshFingerprint());
    },
  );

  it.each(KILLED_AT)("is killed while %s and taken up by the next run", { timeout: TIMEOUT_MS }, async (title) => {
    await fillAs01(pool, 5000);
    const child = spawnNode(PROCESS, [database.url], { timeoutMs: 60_000 });
    await child.waitForLine(title);
    // Sometimes before the server has the piece, sometimes in the middle of it.
    await new Promise((resolve) => setTimeout(resolve, (KILLED_AT.indexOf(title) % 3) * 5));
    await child.kill();
    const store = createPostgresStore({ client: pool });
    await store.migrator.migrate();
    await store.migrator.check();
    expect(await schemaFingerprint(pool)).toEqual(await freshFingerprint());
    const { rows } = await pool.query<{ count: string }>("select count(*) from txbox.message");
    expect(rows[0]!.count).toBe("5000");
  });

  it("is raced by ten processes and run by a role with timeouts of its own", { timeout: TIMEOUT_MS }, async () => {
    await fillAs01(pool, 5000);
    await pool.query(
      "alter role current_user in database " +
        `"${new URL(database.url).pathname.slice(1)}"` +
        " set statement_timeout = '40ms'",
    );
    const pools = Array.from(
      { length: 10 },
      () => new pg.Pool({ connectionString: database.url, max: 1, options: "-c lock_timeout=20" }),
    );
    const results = await Promise.all(pools.map((own) => createPostgresStore({ client: own }).migrator.migrate()));
    const versions = results.flat().map(({ version }) => version);
    expect(new Set(versions).size).toBe(versions.length);
    expect(versions).toContain(4);
    await Promise.all(pools.map((own) => own.end()));
    expect(await schemaFingerprint(pool)).toEqual(await freshFingerprint());
  });

  it("gives SQL for those who upgrade by hand", { timeout: TIMEOUT_MS }, async () => {
    await fillAs01(pool, 2000);
    const store = createPostgresStore({ client: pool });
    const client = await pool.connect();
    // The log was written to, and the SQL works when some of it has run before.
    for (const half of ["twice", "whole"]) {
      for (const { script } of await store.migrator.pending()) {
        const parts = script.split(/^(?=begin;$)/m);
        for (const part of half === "twice" ? parts.slice(0, 3) : parts) await client.query(part);
        if (half === "twice") break;
      }
    }
    client.release();
    await store.migrator.check();
    expect(await schemaFingerprint(pool)).toEqual(await freshFingerprint());
  });
});
