import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { openPool, series } from "../support/outbox-database.ts";
import { walScene } from "../support/wal-scene.ts";

describe.skipIf(!hasPostgres())("a slot that is read by no process", () => {
  const scene = walScene();
  const gone = (timeoutMs: number) =>
    until(async () => (await scene.slots()).length === 0, { what: "no slot", timeoutMs });

  it("is dropped when another process polls before it could be used", async () => {
    const store = await scene.open();
    const holder = openPool(scene.url, 3);
    const open = async () => {
      const client = await holder.connect();
      await client.query("begin; select pg_current_xact_id()");
      return async () => {
        await client.query("rollback");
        client.release();
      };
    };
    const endFirst = await open();
    await scene.start(store);
    await until(async () => (await scene.slots()).length === 1, { what: "a slot that is being made" });
    await sleep(500);
    const endSecond = await open();
    await endFirst();
    await sleep(1500);
    // It is made when the second one ends, and waits for the end of the third one before it is used.
    const endThird = await open();
    await endSecond();
    await until(async () => (await scene.slots())[0]?.confirmed != null, { what: "it is made", timeoutMs: 20_000 });
    await scene.start(scene.openStore(), { source: "polling" });
    await gone(20_000);
    await endThird();
    await holder.end();
  }, 60_000);

  it.runIf(isLong)(
    "is dropped while the relay is paused, also if its stream ended after that",
    async () => {
      const store = await scene.open();
      const streaming = await scene.start(store);
      await streaming.streams();
      await store.admin.pause("r");
      await sleep(1500);
      await scene.cut();
      await gone(50_000);
      await store.admin.resume("r");
      await streaming.streams();
    },
    120_000,
  );

  it.runIf(isLong)(
    "is not taken for stuck because a message comes after a long time",
    async () => {
      const store = await scene.open();
      const streaming = await scene.start(store);
      await streaming.streams();
      await sleep(33_000);
      await store.admin.pause("r");
      await sleep(1500);
      await scene.enqueue(store, series("k", 1));
      await sleep(10_000);
      expect(streaming.lost()).toBeUndefined();
      await store.admin.resume("r");
      await until(() => streaming.publisher.sent.length === 1, { what: "the message" });
    },
    90_000,
  );
});
