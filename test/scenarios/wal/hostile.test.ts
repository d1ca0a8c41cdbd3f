import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startTcpProxy } from "../../support/tcp-proxy.ts";
import { openPool } from "../support/outbox-database.ts";
import { verdict, walScene, writers } from "../support/wal-scene.ts";

const NONE = { lost: 0, doubled: 0, reordered: 0 };

/** A pool of which something happens before or after each statement. */
function tampered(
  url: string,
  { before, after }: { before?: (text: string) => unknown; after?: (text: string) => void },
) {
  const pool = openPool(url, 10);
  const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<unknown>;
  Object.assign(pool, {
    query: async (config: { text?: string }, ...rest: unknown[]) => {
      const text = config.text ?? "";
      await before?.(text);
      const result = await query(config, ...rest);
      after?.(text);
      return result;
    },
  });
  return pool;
}

describe.skipIf(!hasPostgres())("a stream that is tampered with", () => {
  const scene = walScene();
  const one = [{ key: "k", n: 1 }];

  it("is not made of a publication of all tables, nor counts as alive when it ended while it was opened", async () => {
    const store = await scene.open({ enabled: false });
    await scene.query(
      "create publication txbox for all tables with (publish = 'insert', publish_via_partition_root = true)",
    );
    await scene.query("create table noise (n int)");
    const pool = tampered(scene.url, { before: (text) => text.startsWith("select wal_lsn") && sleep(30) });
    const streaming = await scene.start(createPostgresStore({ client: pool }));
    for (let n = 1; n <= 20; n++) {
      await scene.query("insert into noise values (1)");
      await scene.enqueue(store, [{ key: "k", n }]);
    }
    await until(() => streaming.publisher.sent.length === 20, { what: "delivery", timeoutMs: 10_000 });
    await until(() => /does not bring every insert/.test(streaming.lost() ?? ""), { what: "the reason" });
    await streaming.relay.stop();
    await pool.end();
  }, 60_000);

  it("that brings nothing any more is noticed on a quiet log: by its publication", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    await streaming.streams();
    await scene.query("alter publication txbox drop table txbox.message");
    await scene.enqueue(store, one);
    await until(() => streaming.publisher.sent.length === 1, { what: "delivery", timeoutMs: 20_000 });
    expect(streaming.lost()).toMatch(/does not bring every insert/);
  }, 60_000);

  it("that brings nothing any more is noticed on a quiet log: by its silence", async () => {
    const store = await scene.open();
    const proxy = await startTcpProxy(scene.server.port);
    const url = new URL(scene.url);
    url.port = String(proxy.port);
    const connect = () => new pg.Client({ connectionString: url.href, replication: "database" } as pg.ClientConfig);
    const streaming = await scene.start(scene.openStore({ replication: { connect } }));
    await streaming.streams();
    proxy.mute();
    await scene.enqueue(store, one);
    await until(() => streaming.publisher.sent.length === 1, { what: "delivery", timeoutMs: 30_000 });
    expect(streaming.lost()).toMatch(/sent nothing|does not send/);
    await streaming.relay.stop();
    await proxy.close();
  }, 60_000);

  it("whose anchors are written though their answers are lost doubles nothing", async () => {
    await scene.open();
    let anchors = 0;
    const pool = tampered(scene.url, {
      after(text) {
        if (!text.includes("pg_logical_emit_message") || ++anchors % 5 !== 0) return;
        throw Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
      },
    });
    const store = createPostgresStore({ client: pool });
    const streaming = await scene.start(store);
    await streaming.streams();
    const load = writers(scene.url, store, 2);
    await until(() => anchors > 20, { what: "anchors", timeoutMs: 30_000 });
    await load.stop();
    await until(() => streaming.publisher.sent.length >= load.total, { what: "the rest", timeoutMs: 20_000 });
    await sleep(500);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    await streaming.relay.stop();
    await pool.end();
  }, 90_000);

  it("counts what went out last when it is stopped", async () => {
    const store = await scene.open();
    const load = writers(scene.url, store, 2);
    const sent = [];
    for (let round = 0; round < 3; round++) {
      const streaming = await scene.start(scene.openStore());
      await streaming.streams();
      await sleep(400);
      await streaming.relay.stop();
      sent.push(...streaming.publisher.sent);
    }
    await load.stop();
    expect(new Set(sent.map(({ id }) => id)).size).toBe(sent.length);
    const [row] = await scene.query<{ settled: string }>("select sum(settled)::text as settled from txbox.cursor");
    expect(Number(row?.settled)).toBe(sent.length);
  }, 90_000);
});

describe.skipIf(!hasPostgres())("no slot is left behind", () => {
  const scene = walScene();
  const none = () => until(async () => (await scene.slots()).length === 0, { what: "no slot", timeoutMs: 15_000 });

  it("by two processes that stop together", async () => {
    const store = await scene.open();
    const first = await scene.start(store);
    await first.streams();
    const second = await scene.start(scene.openStore());
    await sleep(1500);
    await Promise.all([first.relay.stop(), second.relay.stop()]);
    await none();
  }, 60_000);

  it("by processes that are made to poll one after another", async () => {
    const store = await scene.open();
    const first = await scene.start(store);
    await first.streams();
    const second = await scene.start(scene.openStore());
    await sleep(1500);
    await first.relay.stop();
    await scene.start(scene.openStore(), { source: "polling" });
    await sleep(500);
    await second.relay.stop();
    await scene.start(scene.openStore(), { source: "polling" });
    await none();
  }, 60_000);

  it("by one that stops while its slot is about to be made", async () => {
    await scene.open();
    const connect = () => {
      const client = new pg.Client({ connectionString: scene.url, replication: "database" } as pg.ClientConfig);
      const connected = client.connect.bind(client) as () => Promise<unknown>;
      return Object.assign(client, { connect: () => sleep(800).then(connected) }) as never;
    };
    const streaming = await scene.start(scene.openStore({ replication: { connect } }));
    await sleep(300);
    await streaming.relay.stop();
    await sleep(2000);
    await none();
  }, 60_000);

  it("by one that waits for a transaction that does not end: the log that it keeps is bounded, and the reason is told", async () => {
    await scene.open();
    const open = new pg.Client({ connectionString: scene.url });
    await open.connect();
    await open.query("begin; select pg_current_xact_id()");
    const streaming = await scene.start(scene.openStore({ replication: { maxRetainedBytes: 2 * 1_048_576 } }));
    await sleep(1000);
    await scene.query("create table noise (text text)");
    for (let i = 0; i < 4; i++) {
      await scene.query("insert into noise select repeat('x', 1000) from generate_series(1, 4000)");
    }
    await until(() => /maxRetainedBytes/.test(streaming.lost() ?? ""), { what: "the reason", timeoutMs: 20_000 });
    await streaming.relay.stop();
    await open.query("rollback");
    await open.end();
    await none();
  }, 60_000);

  it("when streams are disabled again and again", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    for (let round = 0; round < 3; round++) {
      await store.wal.enable();
      await streaming.streams();
      await store.wal.disable();
      await none();
      await sleep(300);
      expect(await scene.slots()).toEqual([]);
    }
  }, 90_000);
});

describe.skipIf(!hasPostgres())("a server that waits for standbys", () => {
  const scene = walScene();

  it("is not made to wait for a relay that has the name of one", async () => {
    const store = await scene.open();
    const [row] = await scene.query<{ name: string }>("select current_database() as name");
    // There is no standby that could confirm what is committed here.
    await scene.query(`alter database "${row!.name}" set synchronous_commit = 'local'`);
    const url = new URL(scene.url);
    url.searchParams.set("application_name", "relay_app");
    const pool = openPool(url.href, 5);
    try {
      await scene.query("alter system set synchronous_standby_names = 'relay_app'");
      await scene.query("select pg_reload_conf()");
      const streaming = await scene.start(createPostgresStore({ client: pool }));
      await until(() => /synchronous_standby_names/.test(streaming.lost() ?? ""), { what: "the reason" });
      const client = await pool.connect();
      await client.query("begin");
      await createOutbox({ store }).enqueue(client, {
        stream: "orders",
        type: "t",
        key: "k",
        payload: { key: "k", n: 1 },
      });
      await client.query("commit");
      client.release();
      await until(() => streaming.publisher.sent.length === 1, { what: "delivery by polling" });
      await streaming.relay.stop();
    } finally {
      await pool.end();
      await scene.query("alter system reset synchronous_standby_names");
      await scene.query("select pg_reload_conf()");
    }
  }, 60_000);
});
