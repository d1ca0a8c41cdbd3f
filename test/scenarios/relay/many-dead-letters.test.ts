import { describe, expect, test } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { join } from "../../../src/testing/store/consumer.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { runCli } from "../../support/run-cli.ts";
import { explainingPool } from "../support/explaining-pool.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

async function withLetters(count: number): Promise<OutboxDatabase> {
  const database = await outboxDatabase();
  await (await join(database.store, { relay: "r" })).leave();
  await database.query(
    `insert into txbox.dead (relay, position, lane, solo, attempts, last_error, errors, created_at, size, id, stream, type, key, headers, payload)
     select 'r', i, i % 64, 0, 3, 'no', '[]', now(), 10, 'id-' || i, 's', 't', 'k' || i, '{}', '{}' from generate_series(1, ${count}) i`,
  );
  return database;
}

/** Relays that wait at the end of the log, each with its cursor and lanes. */
async function addRelays(database: OutboxDatabase, count: number): Promise<void> {
  await database.query(
    `with r as (insert into txbox.relay (name) select 'relay-' || i from generate_series(1, ${count}) i returning name),
     c as (insert into txbox.cursor (relay, prev) select name, pg_current_snapshot() from r returning id, relay)
     insert into txbox.lane (relay, lane, cursor_id) select c.relay, l, c.id from c, generate_series(0, 63) l`,
  );
}

describe.skipIf(!hasPostgres())("a great many dead letters", () => {
  test("are listed by the command line, all of them", async () => {
    const count = 130_000;
    await using database = await withLetters(count);
    const listed = await runCli(["dead", "list", "--limit", "200000"], {
      env: { DATABASE_URL: database.url },
      timeoutMs: 110_000,
    });
    expect(listed.stderr).toBe("");
    expect(listed.code).toBe(0);
    const ids = new Set(listed.stdout.match(/\bid-\d+\b/g));
    expect(ids.size).toBe(count);
  });

  test("are requeued part by part: no statement brings them all into memory, and none is left out", async () => {
    const count = 9000;
    await using database = await withLetters(count);
    const { client, statements } = explainingPool(database.pool);
    const { admin } = createPostgresStore({ client });
    const heard: number[] = [];
    expect(await admin.requeue({ all: true }, (soFar) => heard.push(soFar))).toBe(count);
    expect(heard.length).toBeGreaterThan(2);
    expect(Math.max(...statements.map(({ rows }) => rows))).toBeLessThanOrEqual(1);
    const parts = statements.filter(({ text }) => text.includes("with chosen"));
    expect(parts.length).toBeGreaterThan(8);
    expect(parts.every(({ plan }) => plan.includes("dead_state_position_relay_idx"))).toBe(true);
    expect(await database.value("select count(*)::int from txbox.dead where command = 'requeue'")).toBe(count);
  });

  test("are carried out by their relay in parts, each letter once", async () => {
    const count = 5000;
    await using database = await withLetters(count);
    expect(await database.store.admin.requeue({ all: true })).toBe(count);
    const session = await join(database.store, { relay: "r", maxParked: 100_000 });
    const requeued = () => database.value("select count(*)::int from txbox.dead where state = 'requeued'");
    expect(await requeued()).toBeGreaterThanOrEqual(1000);
    for (let i = 0; i < 20 && (await requeued()) !== count; i++) {
      await session.tend();
      const claim = await session.claim("retry");
      if (claim !== undefined) session.abandon(claim);
    }
    expect(await requeued()).toBe(count);
    expect(await database.value("select count(*)::int from txbox.parked")).toBe(count);
    expect(await database.store.admin.requeue({ all: true })).toBe(0);
    await session.leave();
  });

  test("and a great many relays cost a bounded number of statements to show", async () => {
    await using database = await withLetters(10);
    await addRelays(database, 300);
    await database.enqueue(Array.from({ length: 20 }, (_, n) => ({ key: `k${n}`, n })));
    const { client, statements } = explainingPool(database.pool);
    const relays = await createPostgresStore({ client }).admin.relays();
    expect(relays).toHaveLength(301);
    expect(relays.every(({ pending, pendingEstimated }) => pending === 20 && !pendingEstimated)).toBe(true);
    expect(relays.map(({ dead }) => dead).reduce((sum, dead) => sum + dead, 0)).toBe(10);
    expect(statements.length).toBeLessThanOrEqual(14);
  });
});
