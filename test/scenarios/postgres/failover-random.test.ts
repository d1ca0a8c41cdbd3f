import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { describe, expect, it } from "vitest";
import type { PublishResult } from "../../../src/core/contracts.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip, type ServerSlot } from "../../harness/server-or-skip.ts";
import { type PostgresServer, startPostgres } from "../../harness/start-postgres.ts";
import { openPool } from "../support/outbox-database.ts";
import { startStandby } from "../support/standby-server.ts";
import { switchingPool } from "../support/switching-pool.ts";
import { isLong } from "../../support/is-long.ts";

const slot: ServerSlot<PostgresServer> = await serverOrSkip("PostgreSQL", () =>
  startPostgres({ owned: true, settings: { wal_keep_size: "256MB" } }),
);

const PROMOTIONS = isLong ? 20 : 2;
const KEYS = Array.from({ length: 12 }, (_, i) => `k${i}`);

/** A relay process of its own, as far as its connections and its target go. */
interface Owner {
  readonly relay: Relay;
  use(pool: pg.Pool): void;
  /** While this is closed, what is being published hangs. */
  gate: PromiseWithResolvers<void> | undefined;
}

/**
 * Promotions of an asynchronous standby at random moments, with owners that are paused in mid-publish, find out late, or
 * die. Of all that the last server knows, nothing is lost, and first deliveries are in the order of their keys.
 */
describe.skipIf(slot.skipped)("promotions at random", () => {
  it(
    `lose and reorder nothing of what survives, ${PROMOTIONS} times`,
    async () => {
      await using primary = slot.server;
      const delivered: string[] = [];
      let owners: Owner[] = [];
      let server = primary;
      let pool = openPool(server.url, 20);
      await createPostgresStore({ client: pool }).migrator.migrate();
      await pool.query("create table business (key text, n int, id text, primary key (key, n))");

      function start(): Owner {
        const pools = switchingPool(pool);
        const owner: Owner = { relay: undefined as never, use: (next) => pools.use(next), gate: undefined };
        const publish = async ({ id }: { id: string }): Promise<PublishResult> => {
          // A failing message now and then: parked keys move with the lanes.
          if (Math.random() < 0.05) return { status: "failed", error: new Error("now and then") };
          delivered.push(id);
          return { status: "published" };
        };
        const relay = createRelay({
          store: createPostgresStore({ client: pools.client }),
          name: "r",
          leaseMs: 1000,
          batchSize: 20,
          maxAttempts: 1000,
          backoff: { baseMs: 5, maxMs: 50 },
          maintenance: false,
          publisher: {
            keepsKeyOrder: false,
            async publish(messages) {
              const results = await Promise.all(messages.map(publish));
              await owner.gate?.promise;
              return results;
            },
          },
        });
        Object.assign(owner, { relay });
        owners.push(owner);
        return owner;
      }

      const writing = new AbortController();
      let committed = 0;
      const writers = KEYS.map(async (key) => {
        while (!writing.signal.aborted) {
          const client = await pool.connect().catch(() => undefined);
          if (client === undefined) {
            await sleep(20);
            continue;
          }
          try {
            const store = createPostgresStore({ client: pool });
            await client.query("begin");
            await client.query("select pg_advisory_xact_lock(hashtext($1))", [key]);
            const { rows } = await client.query<{ n: number }>(
              "select coalesce(max(n), 0) + 1 as n from business where key = $1",
              [key],
            );
            const id = randomUUID();
            await client.query("insert into business values ($1, $2, $3)", [key, rows[0]!.n, id]);
            await createOutbox({ store }).enqueue(client, { stream: "s", type: "t", key, id, payload: {} });
            await client.query(Math.random() < 0.1 ? "rollback" : "commit");
            client.release();
            committed++;
          } catch {
            client.release(true);
          }
          await sleep(Math.random() * 20);
        }
      });

      for (let n = 0; n < 3; n++) await start().relay.start();
      const standbys: AsyncDisposable[] = [];
      for (let round = 1; round <= PROMOTIONS; round++) {
        const standby = await startStandby(server);
        standbys.push(standby);
        await sleep(Math.random() * 500);
        // Some commits and settles never reach the standby.
        const { rows } = await pool.query<{ pid: number }>("select pid from pg_stat_replication");
        for (const { pid } of rows) process.kill(pid, "SIGSTOP");
        const before = committed;
        await until(() => committed > before + 5, { what: "commits that will be lost" });
        const [paused, dying] = [owners[round % owners.length]!, owners[(round + 1) % owners.length]!];
        paused.gate = Promise.withResolvers();
        await sleep(Math.random() * 300);
        await standby.promote();
        for (const { pid } of rows) process.kill(pid, "SIGCONT");
        const old = { server, pool };
        server = { ...primary, url: standby.url, port: Number(new URL(standby.url).port) };
        pool = openPool(standby.url, 20);
        await until(
          async () =>
            (await pool.query("select pg_is_in_recovery() as r").catch(() => undefined))?.rows[0]?.r === false,
          { what: "promotion", timeoutMs: 60_000 },
        );
        // One dies with the old server, one is paused and finds out late, the others at once.
        owners = owners.filter((owner) => owner !== dying);
        void dying.relay.stop({ deadlineMs: 1 }).catch(() => undefined);
        for (const owner of owners) if (owner !== paused) owner.use(pool);
        await start().relay.start();
        await sleep(1500 + Math.random() * 500);
        paused.use(pool);
        paused.gate.resolve();
        paused.gate = undefined;
        await sleep(300);
        void old.pool.end().catch(() => undefined);
        if (old.server === primary) await primary.kill();
      }
      writing.abort();
      await Promise.all(writers);
      const store = createPostgresStore({ client: pool });
      await until(
        async () => {
          const [figures] = await store.admin.relays();
          return figures?.pending === 0 && figures.parked === 0;
        },
        { what: "everything that is left", timeoutMs: 60_000 },
      );
      await Promise.all(owners.map(({ relay }) => relay.stop({ deadlineMs: 2000 })));
      const { rows } = await pool.query<{ key: string; id: string }>("select key, id from business order by key, n");
      const first = new Map<string, number>();
      for (const [i, id] of delivered.entries()) if (!first.has(id)) first.set(id, i);
      const lost = rows.filter(({ id }) => !first.has(id));
      expect(lost).toEqual([]);
      for (const key of KEYS) {
        const order = rows.filter((row) => row.key === key).map(({ id }) => first.get(id)!);
        expect(order, `first deliveries of ${key}`).toEqual(order.toSorted((a, b) => a - b));
      }
      expect(rows.length).toBeGreaterThan(PROMOTIONS * 10);
      await pool.end();
      for (const standby of standbys.toReversed()) await standby[Symbol.asyncDispose]();
    },
    isLong ? 1_800_000 : 180_000,
  );
});
