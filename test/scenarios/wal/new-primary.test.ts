import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import type { PublishResult } from "../../../src/core/contracts.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { connected, cutReplication, failoverCluster, promoted, slotIsKept } from "../support/failover-cluster.ts";
import { openPool } from "../support/outbox-database.ts";
import { switchingPool } from "../support/switching-pool.ts";

const PUBLISHED: PublishResult = { status: "published" };

describe.skipIf(!hasPostgres())("a relay that lives on when another server has taken over", () => {
  it("nothing goes out of what only the old primary has, though the stream from it goes on", async () => {
    const { primary, standby, pool } = await failoverCluster({
      replication: "asynchronous",
      slots: "on the primary only",
    });
    // The application is led to the new primary; the replication connection still reads from the old one.
    const pools = switchingPool(openPool(primary.url, 5));
    const connect = () => new pg.Client({ connectionString: primary.url, replication: "database" } as pg.ClientConfig);
    const store = createPostgresStore({ client: pools.client, replication: { connect } });
    const sent: string[] = [];
    const events: string[] = [];
    const relay = createRelay({
      store,
      name: "r",
      source: "stream",
      // Long enough for the next look to come late.
      leaseMs: 30_000,
      maintenance: false,
      publisher: {
        keepsKeyOrder: true,
        publish: async (messages) => messages.map(({ id }) => (sent.push(id), PUBLISHED)),
      },
      onEvent: ({ type }) => void events.push(type),
    });
    let there: pg.Pool | undefined;
    try {
      await relay.start();
      await until(() => events.includes("stream_started"), { what: "the stream", timeoutMs: 20_000 });
      await pool.query("insert into business values ('k', 1, 'before')");
      await standby.caughtUp();
      // Both hand out the same transaction ids from here on.
      await cutReplication(pool);
      there = await promoted(standby);
      const outbox = createOutbox({ store: createPostgresStore({ client: there }) });
      const old = await connected(primary.url);
      const present = await connected(standby.url);
      const xid = async (client: pg.Client) =>
        (await client.query<{ xid: string }>("select pg_current_xact_id()::text as xid")).rows[0]!.xid;
      const enqueue = (client: pg.Client, id: string) =>
        outbox.enqueue(client, { stream: "orders", type: "changed", key: id, id, payload: {} });
      // The new primary shows the very transaction whose namesake the old one has.
      await old.query("begin");
      const wanted = BigInt(await xid(old));
      await enqueue(old, "old");
      while (BigInt(await xid(present)) < wanted);
      pools.use(openPool(standby.url, 5));
      await old.query("commit");
      await sleep(2500);
      expect(sent).not.toContain("old");
      await present.query("begin");
      await enqueue(present, "new");
      await present.query("commit");
      await until(() => sent.includes("new"), { what: "what the new primary has", timeoutMs: 40_000 });
      expect(sent).not.toContain("old");
      await Promise.all([old.end(), present.end()]);
    } finally {
      await relay.stop({ deadlineMs: 1000 });
      await Promise.all([pool.end(), there?.end()]);
      await standby[Symbol.asyncDispose]();
      await primary.kill();
      await primary.stop();
    }
  }, 120_000);

  it("that does not know its place, with the slot: nothing overtakes what that place hides", async () => {
    const { primary, standby, pool } = await failoverCluster({
      replication: "asynchronous",
      slots: "kept on the standby",
    });
    const pools = switchingPool(openPool(primary.url, 5));
    const slow = slowLooks(pools.client);
    let url = primary.url;
    const connect = () => new pg.Client({ connectionString: url, replication: "database" } as pg.ClientConfig);
    const store = createPostgresStore({ client: slow.client, replication: { connect, failover: true } });
    const sent: string[] = [];
    const events: string[] = [];
    const relay = createRelay({
      store,
      name: "r",
      source: "stream",
      leaseMs: 30_000,
      maintenance: false,
      publisher: {
        keepsKeyOrder: true,
        publish: async (messages) => messages.map(({ id }) => (sent.push(id), PUBLISHED)),
      },
      onEvent: ({ type }) => void events.push(type),
    });
    const outbox = createOutbox({ store });
    const enqueue = async (client: pg.Client, id: string) => {
      await client.query("begin");
      await outbox.enqueue(client, { stream: "orders", type: "changed", key: "k", id, payload: {} });
      await client.query("commit");
    };
    const prev = async (client: { query: pg.Client["query"] }) =>
      BigInt(
        (await client.query<{ x: string }>("select pg_snapshot_xmax(prev)::text as x from txbox.cursor")).rows[0]!.x,
      );
    let promotedPool: pg.Pool | undefined;
    try {
      await relay.start();
      const started = () => events.filter((type) => type === "stream_started").length;
      await until(() => started() === 1, { what: "the stream", timeoutMs: 20_000 });
      const old = await connected(primary.url);
      let n = 0;
      const stir = setInterval(() => void enqueue(old, `early-${n++}`).catch(() => undefined), 200);
      await slotIsKept(pool, standby).finally(() => clearInterval(stir));
      await sleep(1000);
      await standby.caughtUp();
      await cutReplication(pool);
      // The relay's place moves on, and the standby does not hear of it.
      const known = await prev(old);
      for (let i = 0; i < 200; i++) await old.query("select pg_current_xact_id()");
      await until(
        async () => {
          await enqueue(old, randomUUID());
          return (await prev(old)) > known + 200n;
        },
        { what: "the anchors", intervalMs: 50 },
      );
      // Nothing is on its way any more.
      await sleep(1000);
      const place = await prev(old);
      slow.delayed = true;
      promotedPool = await promoted(standby);
      const present = await connected(standby.url);
      expect(await prev(present)).toBeLessThan(place - 100n);
      // Led to the new primary before anything has failed.
      url = standby.url;
      pools.use(openPool(standby.url, 5));
      await old.end();
      await primary.kill();
      await until(() => started() === 2, { what: "the stream from the new primary", timeoutMs: 20_000 }).catch(
        () => undefined,
      );
      await enqueue(present, "first");
      for (;;) {
        const { rows } = await present.query<{ x: string }>("select pg_current_xact_id()::text as x");
        if (BigInt(rows[0]!.x) > place) break;
      }
      await enqueue(present, "second");
      await until(() => sent.includes("first") && sent.includes("second"), { what: "both", timeoutMs: 40_000 });
      expect(sent.indexOf("first")).toBeLessThan(sent.indexOf("second"));
      await present.end();
    } finally {
      slow.delayed = false;
      await relay.stop({ deadlineMs: 1000 });
      await Promise.all([pool.end(), promotedPool?.end()]);
      await standby[Symbol.asyncDispose]();
      await primary.stop();
    }
  }, 150_000);
});

/** A process that is late to look around. */
function slowLooks(pool: PgPool): { client: PgPool; delayed: boolean } {
  const slow = {
    delayed: false,
    client: {
      async query(config: object) {
        if (slow.delayed && (config as { text: string }).text.includes("'timeline'")) await sleep(8000);
        return pool.query(config);
      },
      connect: () => pool.connect(),
      get totalCount() {
        return pool.totalCount;
      },
    } as PgPool,
  };
  return slow;
}
