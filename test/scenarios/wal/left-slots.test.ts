import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { expect, describe, it } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { createDatabase } from "../../harness/create-database.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { relayProcess } from "../support/relay-process.ts";
import { walScene } from "../support/wal-scene.ts";

describe.skipIf(!hasPostgres())("no slot is left behind", () => {
  const scene = walScene();

  it("by a relay that is stopped at any moment on its way to a stream", async () => {
    const store = await scene.open();
    for (let round = 0; round < (isLong ? 100 : 30); round++) {
      const streaming = await scene.start(store);
      await sleep(round * 2);
      await streaming.relay.stop();
      // What was sent before the end may arrive a moment later.
      await sleep(50);
      expect(await scene.slots(), `stopped ${round * 2} ms after its start`).toEqual([]);
    }
  }, 120_000);

  it("by processes that are stopped at the same moment", async () => {
    const store = await scene.open();
    const first = await scene.start(store);
    await first.streams();
    const second = await scene.start(scene.openStore());
    // Both have seen each other.
    await sleep(2500);
    await Promise.all([first.relay.stop(), second.relay.stop()]);
    expect(await scene.slots()).toEqual([]);
  }, 60_000);

  it("by a process that was killed, when those that go on poll: it is dropped once it keeps too much", async () => {
    await scene.open();
    const store = scene.openStore({ replication: { maxRetainedBytes: 16 * 1_048_576 } });
    const streaming = relayProcess({ url: scene.url, name: "r", source: "stream", leaseMs: 1000 });
    await streaming.waitForLine("ready");
    await until(() => streaming.events("stream_started").length > 0, { what: "the stream", timeoutMs: 20_000 });
    await streaming.kill();
    const polling = await scene.start(store, { source: "polling", maintenance: true, leaseMs: 1000 });
    await scene.enqueue(store, series("k", 5));
    await until(() => polling.publisher.sent.length === 5, { what: "delivery by polling", timeoutMs: 20_000 });
    await scene.query("create table noise (text text)");
    for (let i = 0; i < 10; i++) {
      await scene.query("insert into noise select repeat('x', 1000) from generate_series(1, 4000)");
    }
    await store.maintenance.run();
    expect(await scene.slots()).toEqual([]);
  }, 90_000);

  it("by a process that was killed, when the rest of maintenance fails", async () => {
    await scene.open();
    const streaming = relayProcess({ url: scene.url, name: "r", source: "stream", leaseMs: 1000 });
    await streaming.waitForLine("ready");
    await until(() => streaming.events("stream_started").length > 0, { what: "the stream", timeoutMs: 20_000 });
    await streaming.kill();
    await scene.query("update txbox.member set lease_until = clock_timestamp() - interval '2 minutes'");
    await scene.query("create role tender login replication password 'tender'");
    await scene.query("grant usage on schema txbox to tender");
    await scene.query("grant select on txbox.relay, txbox.member to tender");
    const url = Object.assign(new URL(scene.url), { username: "tender", password: "tender" });
    const pool = openPool(url.href, 2);
    try {
      const store = createPostgresStore({ client: pool });
      // The server notices only a moment later that the reader has gone.
      await until(async () => (await scene.slots())[0]?.active_pid === null, { what: "the end of the reader" });
      await expect(store.maintenance.run()).rejects.toThrow(/permission denied/);
      expect(await scene.slots()).toEqual([]);
    } finally {
      await pool.end();
      await scene.query("drop owned by tender");
      await scene.query("drop role tender");
    }
  }, 60_000);

  it("in another database that the replication connection leads to by mistake", async () => {
    await scene.open();
    const other = await createDatabase(scene.server.url);
    try {
      const connect = () => new pg.Client({ connectionString: other.url, replication: "database" } as pg.ClientConfig);
      const store = createPostgresStore({ client: openPool(scene.url, 4), replication: { connect } });
      const streaming = await scene.start(store);
      await scene.enqueue(store, series("k", 5));
      await until(() => streaming.publisher.sent.length === 5, { what: "delivery by polling" });
      await until(() => streaming.lost() !== undefined, { what: "the reason", timeoutMs: 20_000 });
      await sleep(2500);
      await streaming.relay.stop();
      expect(await scene.slots()).toEqual([]);
      expect(streaming.lost()).toMatch(/different servers/);
    } finally {
      await scene.query("select pg_drop_replication_slot(slot_name) from pg_replication_slots").catch(() => undefined);
      await other.drop();
    }
  }, 60_000);
});
