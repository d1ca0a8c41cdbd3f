import pg from "pg";
import { expect, describe, it } from "vitest";
import type { Message } from "../../src/core/message.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { MIGRATIONS } from "../../src/stores/postgres/migrations/index.ts";
import { databaseOf } from "../../src/stores/postgres/postgres-client.ts";
import { createMigrator } from "../../src/stores/postgres/postgres-migrator.ts";
import { postgresNames } from "../../src/stores/postgres/postgres-names.ts";
import { join, nextClaim, PUBLISHED } from "../../src/testing/store/consumer.ts";
import { until } from "../harness/index.ts";
import { hasPostgres, testDatabase } from "../harness/shared-postgres.ts";
import { poolAs04 } from "../support/release-0.4.ts";
import { watchWriterWaits } from "../support/lock-waits.ts";
import { schemaFingerprint } from "../support/schema-fingerprint.ts";

const MAX_WAIT_MS = 1000;

describe.skipIf(!hasPostgres())("upgrade from 0.3", () => {
  it("holds up no writer, and lets writers and relays of 0.3 go on", { timeout: 120_000 }, async () => {
    await using database = await testDatabase();
    const pool = new pg.Pool({ connectionString: database.url, max: 12 });
    pool.on("error", () => undefined);
    const names = postgresNames({ schema: "txbox", tablePrefix: "" });
    const as03 = createMigrator({ database: databaseOf(pool), names, migrations: MIGRATIONS.slice(0, 8) });
    await as03.migrate();
    const store = createPostgresStore({ client: pool });
    await expect(store.migrator.check()).rejects.toMatchObject({ code: "schema_outdated" });

    // What 0.3 leaves behind: keys that wait, and dead letters in number.
    await pool.query("insert into txbox.relay (name) values ('idle')");
    await pool.query(`insert into txbox.blocked (relay, lane, stream, key, position, attempts, next_at, last_error, errors)
      select 'idle', 1, 'orders', 'k-' || i, i, 3, clock_timestamp() + interval '1 day', 'refused', '[{"at":"2026-01-01T00:00:00Z","error":"refused"}]'
      from generate_series(1, 20000) i`);
    await pool.query(`insert into txbox.dead (relay, position, lane, solo, blocks, attempts, last_error, errors, created_at, size, id, stream, type, key, payload)
      select 'idle', i, 1, 0, i % 2 = 0, 10, 'no', '[]', clock_timestamp(), 2, 'd-' || i, 'orders', 't', 'k-' || i, '{}' from generate_series(1, 50000) i`);

    const outbox = createOutbox({ store });
    const ended = new AbortController();
    let longest = 0;
    const committed: number[] = [];
    const write = async (key: string): Promise<void> => {
      for (let n = 1; !ended.signal.aborted; n++) {
        const client = await pool.connect();
        const startedAt = performance.now();
        try {
          await client.query("begin");
          await outbox.enqueue(client, { stream: "orders", type: "t", key, payload: n });
          await client.query("commit");
          committed.push(n);
        } finally {
          client.release();
        }
        longest = Math.max(longest, performance.now() - startedAt);
      }
    };
    // The session of a relay as 0.3 has it: only its start looks at the version.
    const published: Message[] = [];
    const oldPool = poolAs04(database.url, 4);
    const session = await join(createPostgresStore({ client: oldPool }), { relay: "live" });
    let allWritten = false;
    const deliver = async (): Promise<void> => {
      for (;;) {
        // The last transactions end after the writers were told to.
        const wasWritten = allWritten;
        const claim = await nextClaim(session);
        if (claim === undefined && wasWritten) return;
        if (claim === undefined) await new Promise((resolve) => setTimeout(resolve, 10));
        else {
          published.push(...claim.messages);
          await session.settle(
            claim,
            claim.messages.map(() => PUBLISHED),
          );
        }
      }
    };
    const writing = Promise.all(["a", "b", "c"].map(write)).finally(() => (allWritten = true));
    const work = Promise.all([deliver(), writing]);
    await until(() => committed.length > 100, { what: "writers", timeoutMs: 60_000 });
    const controlMs = longest;
    const waits = await watchWriterWaits(database.url);
    const applied = await store.migrator.migrate();
    expect(applied.map(({ version }) => version)).toEqual(
      MIGRATIONS.map(({ version }) => version).filter((version) => version > 8),
    );
    await store.migrator.check();
    const before = committed.length;
    await until(() => committed.length > before + 100, { what: "writers afterwards", timeoutMs: 60_000 });
    ended.abort();
    await Promise.all([work, waits.stop()]);
    await session.leave();
    const figures = `longest wait for a lock ${waits.longestMs.toFixed(0)} ms, longest transaction ${longest.toFixed(0)} ms (before: ${controlMs.toFixed(0)} ms)`;
    expect(waits.longestMs, figures).toBeLessThan(MAX_WAIT_MS);
    expect(longest, figures).toBeLessThan(MAX_WAIT_MS + controlMs);
    expect(published).toHaveLength(committed.length);
    for (const key of ["a", "b", "c"]) {
      const own = published.filter((message) => message.key === key).map(({ body }) => Number(body));
      expect(own).toEqual(own.map((_, i) => i + 1));
    }

    // Old rows have no time of their own: the first error that was kept tells it.
    const [old] = await store.admin.blocked({ relay: "idle", limit: 1 });
    expect(old?.since).toEqual(new Date("2026-01-01T00:00:00Z"));
    await using fresh = await testDatabase();
    const own = new pg.Pool({ connectionString: fresh.url, max: 1 });
    await createPostgresStore({ client: own }).migrator.migrate();
    expect(await schemaFingerprint(pool)).toEqual(await schemaFingerprint(own));
    // Letters of 0.3 have no group: they are still shown in groups, and maintenance writes the groups down.
    const groups = async () =>
      (await store.admin.deadGroups({ relay: "idle" })).map(({ count, error }) => [count, error]);
    expect(await groups()).toEqual([[5000, "no"]]);
    await store.maintenance.run();
    expect(await groups()).toEqual([[50_000, "no"]]);
    await Promise.all([own.end(), pool.end(), oldPool.end()]);
  });
});
