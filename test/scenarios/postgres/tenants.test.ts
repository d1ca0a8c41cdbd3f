import pg from "pg";
import { describe, expect, test } from "vitest";
import { UnavailableError } from "../../../src/core/errors.ts";
import { publishEach } from "../../../src/core/publish-each.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore, type PostgresStore } from "../../../src/stores/postgres/index.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { inTransaction } from "../../support/in-transaction.ts";

const PATIENCE_MS = 60_000;

/** `n` messages of a tenant on one key, numbered from 0. */
async function enqueue(
  pool: pg.Pool,
  store: PostgresStore,
  tenant: string,
  n: number,
  key = `${tenant}:o-1`,
): Promise<void> {
  const outbox = createOutbox({ store });
  const messages = Array.from({ length: n }, (_, i) => ({
    stream: "orders",
    type: "moved",
    key,
    headers: { tenant },
    payload: i,
  }));
  await inTransaction(pool, (tx) => outbox.enqueue(tx, messages));
}

const numbers = (messages: readonly { body: string | Uint8Array }[]): number[] =>
  messages.map(({ body }) => Number(body));
const upTo = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

describe.skipIf(!hasPostgres())("tenants", () => {
  test("one log: a tenant whose receiver is out holds up no other tenant", async () => {
    await using database = await testDatabase();
    const pool = new pg.Pool({ connectionString: database.url });
    const store = createPostgresStore({ client: pool });
    const received: Record<string, number[]> = { acme: [], beta: [] };
    let out = true;
    const relay = createRelay({
      store,
      name: "webhooks",
      publisher: publishEach(async ({ headers, body }) => {
        const tenant = String(headers["tenant"]);
        if (tenant === "acme" && out) throw new UnavailableError("no answer", { route: "acme.example" });
        received[tenant]!.push(Number(body));
      }),
    });
    try {
      await store.migrator.migrate();
      await enqueue(pool, store, "acme", 30);
      await enqueue(pool, store, "beta", 30);
      await relay.start();
      await until(() => received["beta"]!.length === 30, { what: "all of beta", timeoutMs: PATIENCE_MS });
      expect(received).toEqual({ acme: [], beta: upTo(30) });
      await until(() => relay.state().routesOut.length === 1, { what: "the route is named", timeoutMs: PATIENCE_MS });
      const { messages } = await store.admin.search({ key: "acme:o-1" });
      expect(messages.map(({ attempts }) => attempts).filter((attempts) => attempts > 0)).toEqual([]);
      out = false;
      await until(() => received["acme"]!.length === 30, { what: "all of acme", timeoutMs: PATIENCE_MS });
      expect(received["acme"]).toEqual(upTo(30));
    } finally {
      await relay.stop();
      await pool.end();
    }
  });

  test("a schema for each: the same ids, keys and names do not meet, and a dropped tenant takes nothing along", async () => {
    await using database = await testDatabase();
    const pool = new pg.Pool({ connectionString: database.url });
    const tenants = ["acme", "beta", "gamma"].map((tenant) => {
      const store = createPostgresStore({ client: pool, schema: `txbox_${tenant}` });
      const publisher = createMemoryPublisher();
      return { tenant, store, publisher, relay: createRelay({ store, name: "to-broker", publisher }) };
    });
    try {
      for (const { store } of tenants) await store.migrator.migrate();
      await inTransaction(pool, async (tx) => {
        for (const { tenant, store } of tenants) {
          const message = { id: "same", stream: "orders", type: "moved", key: "o-1", payload: tenant };
          expect(await createOutbox({ store }).enqueue(tx, message)).toMatchObject({ duplicate: false });
        }
      });
      await Promise.all(tenants.map(({ relay }) => relay.start()));
      for (const { publisher } of tenants)
        await until(() => publisher.published.length === 1, { what: "a message for each", timeoutMs: PATIENCE_MS });
      const bodies = tenants.map(({ publisher }) => publisher.published.map(({ body }) => JSON.parse(String(body))));
      expect(bodies).toEqual([["acme"], ["beta"], ["gamma"]]);

      const [acme, ...others] = tenants;
      await acme!.relay.stop();
      await pool.query("drop schema txbox_acme cascade");
      for (const { tenant, store } of others) await enqueue(pool, store, tenant, 5);
      for (const { publisher } of others)
        await until(() => publisher.published.length === 6, {
          what: "five more for the others",
          timeoutMs: PATIENCE_MS,
        });
      for (const { publisher } of others) expect(numbers(publisher.published.slice(1))).toEqual(upTo(5));
    } finally {
      await Promise.all(tenants.map(({ relay }) => relay.stop()));
      await pool.end();
    }
  });

  test("a database for each: rounds deliver to all, and a flood of one takes turns", async () => {
    await using first = await testDatabase();
    await using second = await testDatabase();
    const tenants = [first, second].map(({ url }) => {
      const pool = new pg.Pool({ connectionString: url, max: 3, idleTimeoutMillis: 1000 });
      const store = createPostgresStore({ client: pool });
      const publisher = createMemoryPublisher();
      return { pool, store, publisher, relay: createRelay({ store, name: "to-broker", publisher, batchSize: 100 }) };
    });
    const round = async (): Promise<number[]> => {
      const published: number[] = [];
      for (const { relay, store } of tenants) {
        published.push((await relay.drainOnce({ deadlineMs: 30_000, max: 1000 })).published);
        await store.maintenance.run();
      }
      return published;
    };
    const [flood, quiet] = tenants;
    try {
      for (const { store } of tenants) await store.migrator.migrate();
      await enqueue(flood!.pool, flood!.store, "flood", 3000);
      await enqueue(quiet!.pool, quiet!.store, "quiet", 3);

      const [ofFlood, ofQuiet] = await round();
      expect(ofQuiet).toBe(3);
      expect(ofFlood).toBeGreaterThanOrEqual(1000);
      expect(ofFlood).toBeLessThan(2000);
      await enqueue(quiet!.pool, quiet!.store, "quiet", 2, "quiet:o-2");
      for (let rounds = 0; flood!.publisher.published.length < 3000 && rounds < 10; rounds++) await round();

      expect(numbers(flood!.publisher.published)).toEqual(upTo(3000));
      expect(numbers(quiet!.publisher.published)).toEqual([0, 1, 2, 0, 1]);
      expect(await round()).toEqual([0, 0]);
    } finally {
      for (const { pool } of tenants) await pool.end();
    }
  });
});
