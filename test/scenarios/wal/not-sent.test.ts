import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { walScene } from "../support/wal-scene.ts";

describe.skipIf(!hasPostgres())("a server that keeps back what it has", () => {
  const scene = walScene();

  it("as while a standby is away does not keep messages waiting", async () => {
    const writer = await scene.open();
    const streaming = await scene.start(scene.openStore({ replication: { failover: true } }));
    await streaming.streams();
    await scene.query("select pg_create_physical_replication_slot('away', true)");
    await scene.query("alter system set synchronized_standby_slots = 'away'");
    await scene.query("select pg_reload_conf()");
    await sleep(300);
    const { sent } = streaming.publisher;
    await scene.enqueue(writer, series("first", 3));
    await until(() => sent.length === 3, { what: "delivery by polling", timeoutMs: 18_000 });
    expect(streaming.lost()).toMatch(/synchronized_standby_slots/);
    // Attempts to stream again stop nothing: the old part of the log would not come either.
    for (let n = 1; n <= 40; n++) {
      await scene.enqueue(writer, [{ key: "later", n }]);
      await until(() => sent.length === 3 + n, { what: "delivery meanwhile", timeoutMs: 2000 });
      await sleep(100);
    }
    await scene.query("alter system reset synchronized_standby_slots");
    await scene.query("select pg_reload_conf()");
    await streaming.streams();
    await scene.enqueue(writer, series("last", 3));
    await until(() => sent.length === 46, { what: "delivery by the stream" });
    expect(streaming.publisher.firsts("later")).toEqual(series("", 40).map(({ n }) => n));
    expect(new Set(sent.map(({ id }) => id)).size).toBe(46);
    await streaming.relay.stop();
    await scene.query("select pg_drop_replication_slot('away')");
  }, 90_000);
});

describe.skipIf(!hasPostgres())(
  "a publication that leaves out rows for a moment, while it is proven that nothing is missing",
  () => {
    const scene = walScene();

    it("lets no later message of a key overtake", async () => {
      await scene.open();
      const pool = openPool(scene.url, 8);
      const query = pool.query.bind(pool) as (config: { text: string }) => Promise<unknown>;
      let gate: Promise<void> | undefined;
      let asked = false;
      Object.assign(pool, {
        query: async (config: { text: string }) => {
          if (gate !== undefined && config.text.includes("select n, positions")) {
            asked = true;
            await gate;
          }
          return query(config);
        },
      });
      const store = createPostgresStore({ client: pool });
      const streaming = await scene.start(store);
      await streaming.streams();
      const writers = openPool(scene.url, 2);
      const outbox = createOutbox({ store });
      const put = async (key: string, type: string, n: number): Promise<void> => {
        const client = await writers.connect();
        await client.query("begin");
        await outbox.enqueue(client, { stream: "orders", type, key, payload: { key, n } });
        await client.query("commit");
        client.release();
      };
      await put("x", "shown", 1);
      await until(() => streaming.publisher.sent.length === 1, { what: "the first" });
      await sleep(500);
      const open = Promise.withResolvers<void>();
      await scene.query("alter publication txbox set table txbox.message where (type <> 'hidden')");
      gate = open.promise;
      await put("x", "shown", 2);
      await until(() => asked || streaming.lost() !== undefined, { what: "the proof, or its refusal" });
      await put("k", "hidden", 1);
      await put("k", "shown", 2);
      await sleep(300);
      await scene.query("alter publication txbox set table txbox.message");
      gate = undefined;
      open.resolve();
      await until(() => streaming.publisher.sent.length === 4, { what: "all", timeoutMs: 20_000 });
      expect(streaming.publisher.firsts("k")).toEqual([1, 2]);
      await streaming.relay.stop();
      await Promise.all([pool.end(), writers.end()]);
    }, 60_000);
  },
);
