import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { freezingPool } from "../support/freezing-pool.ts";
import { flakyPool } from "../support/flaky-pool.ts";
import { interceptingPool } from "../support/intercepting-pool.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { verdict, walScene, writers } from "../support/wal-scene.ts";

const NONE = { lost: 0, doubled: 0, reordered: 0 };

describe.skipIf(!hasPostgres())("at the worst moment", () => {
  const scene = walScene();
  const replication = () => ({
    connect: () => new pg.Client({ connectionString: scene.url, replication: "database" } as pg.ClientConfig),
  });

  it("a stream that ends before it is taken over holds nothing up", async () => {
    const store = await scene.open();
    const pool = openPool(scene.url);
    const intercepting = interceptingPool(pool);
    // Between the agreement of the server and the last check.
    const caught = intercepting.intercept(/select wal_lsn::text/, async (send) => {
      const answer = await send();
      await scene.cut();
      await until(async () => (await scene.slots()).every(({ active_pid }) => active_pid === null), {
        what: "the cut",
      });
      await sleep(100);
      return answer;
    });
    const streaming = await scene.start(
      createPostgresStore({ client: intercepting.client, replication: replication() }),
    );
    await caught;
    await sleep(500);
    await scene.enqueue(store, series("k", 10));
    await until(() => streaming.publisher.sent.length === 10, { what: "delivery", timeoutMs: 10_000 });
    await streaming.streams();
    await streaming.relay.stop();
    await pool.end();
  }, 60_000);

  it("a process that comes back to the slot when another one reads it already leaves it alone", async () => {
    const store = await scene.open();
    const pool = openPool(scene.url);
    const { client, frozen, thaw } = freezingPool(pool, /pg_replication_slots/);
    const first = await scene.start(createPostgresStore({ client, replication: replication() }), { leaseMs: 1000 });
    await first.streams();
    const second = await scene.start(scene.openStore(), { leaseMs: 1000 });
    const isFrozen = frozen();
    await scene.cut();
    await isFrozen;
    await second.streams();
    const reader = (await scene.slots())[0]!.active_pid;
    thaw();
    await sleep(2000);
    await scene.enqueue(store, series("k", 10));
    await until(() => second.publisher.sent.length === 10, { what: "delivery", timeoutMs: 10_000 });
    expect(second.events.map(({ type }) => type)).toEqual(["stream_started"]);
    expect((await scene.slots())[0]!.active_pid).toBe(reader);
    expect(first.lost()).not.toMatch(/Another process|made anew/);
    await first.relay.stop();
    await second.relay.stop();
    await pool.end();
  }, 60_000);

  it("an anchor whose answer is lost doubles nothing", async () => {
    const store = await scene.open();
    const pool = openPool(scene.url);
    const flaky = flakyPool(pool);
    const streaming = await scene.start(createPostgresStore({ client: flaky.client, replication: replication() }));
    await streaming.streams();
    streaming.publisher.before = () => sleep(30);
    const load = writers(scene.url, store, 2);
    for (let round = 1; round <= 4; round++) {
      await streaming.streams();
      flaky.loseAnswer(/audit as materialized/);
      await until(() => flaky.lost === round, { what: "the loss", timeoutMs: 20_000 });
      await sleep(200);
    }
    await load.stop();
    await until(() => verdict(streaming.publisher, load.committed).lost === 0, { what: "the rest", timeoutMs: 30_000 });
    await sleep(300);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    await streaming.relay.stop();
    await pool.end();
  }, 120_000);

  it("a slot that is given to its relay by a statement whose answer is lost doubles nothing", async () => {
    const store = await scene.open();
    const pool = openPool(scene.url);
    const flaky = flakyPool(pool);
    flaky.loseAnswer(/wal_lsn = \$5/);
    const streaming = await scene.start(createPostgresStore({ client: flaky.client, replication: replication() }));
    streaming.publisher.before = () => sleep(50);
    const load = writers(scene.url, store, 1);
    await until(() => flaky.lost === 1, { what: "the loss", timeoutMs: 20_000 });
    await streaming.streams();
    await sleep(300);
    await load.stop();
    await until(() => verdict(streaming.publisher, load.committed).lost === 0, { what: "the rest", timeoutMs: 30_000 });
    await sleep(300);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    await streaming.relay.stop();
    await pool.end();
  }, 60_000);

  it("a settle of failed keys whose answer is lost doubles nothing", async () => {
    const store = await scene.open();
    const pool = openPool(scene.url);
    const flaky = flakyPool(pool);
    const streaming = await scene.start(createPostgresStore({ client: flaky.client, replication: replication() }), {
      backoff: { baseMs: 20, maxMs: 50 },
    });
    await streaming.streams();
    const refused = new Set<string>();
    streaming.publisher.rule = ({ key, n }) => {
      const name = `${key}/${n}`;
      if (n % 3 !== 0 || refused.has(name)) return undefined;
      refused.add(name);
      return { status: "failed", error: new Error("once") };
    };
    streaming.publisher.before = () => sleep(30);
    const load = writers(scene.url, store, 2);
    for (let round = 1; round <= 4; round++) {
      // For longer than it takes until the next anchor.
      flaky.loseAnswer(/commit_mode from c/, 5);
      await until(() => flaky.lost === 5 * round, { what: "the loss", timeoutMs: 20_000 });
      await sleep(200);
    }
    await load.stop();
    await until(() => verdict(streaming.publisher, load.committed).lost === 0, { what: "the rest", timeoutMs: 30_000 });
    await sleep(300);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    expect(streaming.lost()).toBeUndefined();
    await streaming.relay.stop();
    await pool.end();
  }, 120_000);

  it("a rewind to now while messages stream: what is enqueued after it goes out once", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    for (let round = 1; round <= 5; round++) {
      await scene.enqueue(store, series(`before-${round}`, 2));
      await until(() => streaming.publisher.sent.at(-1)?.key === `before-${round}`, { what: "the stream" });
      await until(async () => (await store.admin.relays())[0]?.pending === 0, { what: "the anchors" });
      await streaming.streams();
      await store.admin.rewind("r", "now");
      await scene.enqueue(store, series(`after-${round}`, 2));
      await until(() => streaming.publisher.sent.at(-1)?.key === `after-${round}`, { what: "what came after" });
    }
    await sleep(2500);
    const after = streaming.publisher.sent.filter(({ key }) => key?.startsWith("after"));
    expect(after.map(({ key, n }) => `${key}/${n}`)).toEqual(
      [1, 2, 3, 4, 5].flatMap((round) => [`after-${round}/1`, `after-${round}/2`]),
    );
  }, 60_000);

  it("a publication that is changed while nothing happens holds nothing up for long", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    await streaming.streams();
    await scene.enqueue(store, series("k", 5));
    await until(() => streaming.publisher.sent.length === 5, { what: "the stream" });
    await until(async () => (await store.admin.relays())[0]?.pending === 0, { what: "the anchors" });
    await sleep(1500);
    await scene.query("alter publication txbox set (publish = 'update')");
    await scene.enqueue(store, series("hidden", 5));
    await until(() => streaming.publisher.sent.length === 10, { what: "what was hidden", timeoutMs: 30_000 });
    expect(
      verdict(
        streaming.publisher,
        new Map([
          ["k", 5],
          ["hidden", 5],
        ]),
      ),
    ).toEqual(NONE);
  }, 60_000);
});
