import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterEach, describe, expect, it } from "vitest";
import { createPostgresStore, type PostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { walScene } from "../support/wal-scene.ts";

describe.skipIf(!hasPostgres())("a store whose role is another than that of its replication connection", () => {
  const scene = walScene();
  const pools: pg.Pool[] = [];
  afterEach(async () => {
    await Promise.all(pools.splice(0).map((pool) => pool.end()));
  });

  /** The role may do what a relay needs, and neither replicate nor drop slots, unless it is given that. */
  async function storeOf(role: string, { attribute = "", maxRetainedBytes = 2 ** 30 } = {}): Promise<PostgresStore> {
    const owner = await scene.open();
    await scene.query(`drop role if exists ${role}`);
    await scene.query(`create role ${role} login ${attribute}`);
    await scene.query(owner.grants({ relay: role, writer: role }).replaceAll(/^--.*$/gm, ""));
    const url = new URL(scene.url);
    url.username = role;
    const pool = openPool(url.toString(), 8);
    pools.push(pool);
    const connect = () => new pg.Client({ connectionString: scene.url, replication: "database" } as pg.ClientConfig);
    return createPostgresStore({ client: pool, replication: { connect, maxRetainedBytes } });
  }

  const hold = async () => {
    const pool = openPool(scene.url, 1);
    pools.push(pool);
    const client = await pool.connect();
    await client.query("begin; select pg_current_xact_id()");
    return async () => {
      await client.query("rollback");
      client.release();
    };
  };

  it("leaves no slot when it stops", async () => {
    const store = await storeOf("plain_stop");
    const streaming = await scene.start(store);
    await streaming.streams();
    await scene.enqueue(store, series("k", 3));
    await until(() => streaming.publisher.sent.length === 3, { what: "the stream" });
    await streaming.relay.stop();
    expect(await scene.slots()).toEqual([]);
  });

  it("keeps no more than it may, and does not take up a slot that keeps too much", async () => {
    const store = await storeOf("plain_guard", { maxRetainedBytes: 8 * 2 ** 20 });
    const streaming = await scene.start(store);
    await streaming.streams();
    await scene.query("create table noise (text text)");
    const release = await hold();
    for (let i = 0; i < 8; i++)
      await scene.query("insert into noise select repeat(md5(random()::text), 40) from generate_series(1, 4000)");
    await until(() => /kept \d+ MB/.test(streaming.lost() ?? ""), { what: "the guard", timeoutMs: 20_000 });
    const kept = () =>
      scene.query("select 1 from pg_replication_slots where pg_current_wal_lsn() - restart_lsn > 8 * 1048576");
    await until(async () => (await kept()).length === 0, { what: "the slot is gone", timeoutMs: 10_000 });
    await release();
  }, 60_000);

  it("ends what waits to make a slot, with the rights of the role that makes it", async () => {
    const store = await storeOf("plain_making", { attribute: "replication" });
    const release = await hold();
    const streaming = await scene.start(store);
    await until(async () => (await scene.slots()).length === 1, { what: "a slot that is being made" });
    const startedAt = performance.now();
    await streaming.relay.stop();
    expect(performance.now() - startedAt).toBeLessThan(5000);
    await release();
    await sleep(500);
    expect(await scene.slots()).toEqual([]);
  }, 60_000);
});
