import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { createRelay } from "../../../src/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { isLong } from "../../support/is-long.ts";
import { series } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";
import { type Streaming, verdict, walScene, writers } from "../support/wal-scene.ts";

const ROUNDS = isLong ? 20 : 4;
const MOST_LOSSES = 4;
const NONE = { lost: 0, doubled: 0, reordered: 0 };

describe.skipIf(!hasPostgres())("polling and the server's log hand over to each other", () => {
  const scene = walScene();

  it("streams what is committed, keeps progress that polling could go on from, and leaves nothing behind", async () => {
    const store = await scene.open();
    await scene.enqueue(store, series("before", 5));
    const streaming = await scene.start(store);
    await streaming.streams();
    await scene.enqueue(store, series("k", 300));
    await until(() => streaming.publisher.sent.length === 305, { what: "all of it" });
    expect(streaming.publisher.sent.map(({ n }) => n)).toEqual(
      [...series("", 5), ...series("", 300)].map(({ n }) => n),
    );
    // Anchors bring the cursor to the end, and the server may forget.
    await until(async () => (await store.admin.relays())[0]?.pending === 0, { what: "the anchors" });
    const [relay] = await store.admin.relays();
    expect([relay?.published, relay?.pending]).toEqual([305n, 0]);
    const source = async () => (await store.wal.status()).relays[0]?.processes[0]?.source;
    await until(async () => (await source()) === "stream", { what: "the source in the status" });
    expect(await scene.slots()).toHaveLength(1);
    await streaming.relay.stop();
    expect(await scene.slots()).toEqual([]);
  });

  it("reads on behind pages of which a stream has brought everything already", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store, { batchSize: 5 });
    await streaming.streams();
    await scene.enqueue(store, series("k", 100));
    await until(() => streaming.publisher.sent.length === 100, { what: "all of it", intervalMs: 1 });
    await streaming.relay.stop();
    const [noted] = await scene.query<{ ahead: { ids: object } | null }>("select ahead from txbox.cursor");
    expect(Object.keys(noted?.ahead?.ids ?? {}).length, "messages beyond the cursor").toBeGreaterThan(20);
    await scene.enqueue(store, series("later", 3));
    const publisher = new RecordingPublisher();
    const once = createRelay({ store, name: "r", publisher, batchSize: 5, maintenance: false });
    expect(await once.drainOnce()).toMatchObject({ published: 3 });
    expect(publisher.sent.map(({ key, n }) => [key, n])).toEqual([1, 2, 3].map((n) => ["later", n]));
  });

  it(`${ROUNDS} times in each direction under load: nothing is lost, doubled or reordered`, async () => {
    const store = await scene.open();
    let streaming = await scene.start(store);
    const sent: Streaming["publisher"]["sent"] = [];
    const load = writers(scene.url, store);
    for (let round = 0; round < ROUNDS; round++) {
      if (round > 0 && round % MOST_LOSSES === 0) {
        // Losses in a row make a process wait ever longer before it streams again.
        await streaming.relay.stop();
        sent.push(...streaming.publisher.sent);
        streaming = await scene.start(scene.openStore());
      }
      await streaming.streams();
      await sleep(100);
      const events = streaming.events.length;
      await (round % 2 === 0 ? scene.cut() : scene.dropSlot());
      await until(() => streaming.events.length > events, { what: "the loss" });
    }
    await streaming.streams();
    await load.stop();
    streaming.publisher.sent.unshift(...sent);
    await until(() => streaming.publisher.sent.length >= load.total, { what: "the rest", timeoutMs: 20_000 });
    await sleep(200);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    expect(load.total).toBeGreaterThan(50);
  }, 300_000);

  it("a slot that is dropped under load holds nothing up for 5 s", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    const load = writers(scene.url, store, 2);
    await streaming.streams();
    await sleep(300);
    await scene.dropSlot();
    const droppedAt = performance.now();
    const before = streaming.publisher.sent.length;
    await until(() => streaming.publisher.sent.length > before + 20, { what: "more", timeoutMs: 5000 });
    expect(performance.now() - droppedAt).toBeLessThan(5000);
    await load.stop();
    await until(() => streaming.publisher.sent.length >= load.total, { what: "the rest", timeoutMs: 20_000 });
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
  }, 60_000);

  it("between processes that stop and start under load: nothing is lost, doubled or reordered", async () => {
    const store = await scene.open();
    const first = await scene.start(store);
    const load = writers(scene.url, store, 3);
    await first.streams();
    const second = await scene.start(scene.openStore());
    await sleep(1500);
    // The one that stands by has no lanes.
    expect(second.relay.state().session?.lanes).toBe(0);
    await first.relay.stop();
    await second.streams();
    expect(await scene.slots()).toHaveLength(1);
    await sleep(300);
    await load.stop();
    const sent = () => first.publisher.sent.length + second.publisher.sent.length;
    await until(() => sent() >= load.total, { what: "the rest", timeoutMs: 20_000 });
    await sleep(200);
    first.publisher.sent.push(...second.publisher.sent);
    expect(verdict(first.publisher, load.committed)).toEqual(NONE);
  }, 60_000);

  it("a relay that is asked to poll takes over from one that streamed, without a message twice", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store);
    const load = writers(scene.url, store, 2);
    await streaming.streams();
    await sleep(400);
    await streaming.relay.stop();
    const polling = await scene.start(scene.openStore(), { source: "polling" });
    await sleep(300);
    await load.stop();
    const sent = () => streaming.publisher.sent.length + polling.publisher.sent.length;
    await until(() => sent() >= load.total, { what: "the rest", timeoutMs: 20_000 });
    streaming.publisher.sent.push(...polling.publisher.sent);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
  }, 60_000);

  it("failed keys wait and come in order while others stream on", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store, { backoff: { baseMs: 20, maxMs: 50 } });
    let broken = true;
    streaming.publisher.rule = ({ key }) =>
      broken && key === "bad" ? { status: "failed", error: new Error("not now") } : undefined;
    await streaming.streams();
    for (let n = 1; n <= 30; n++)
      await scene.enqueue(store, [
        { key: "bad", n },
        { key: "good", n },
      ]);
    await until(() => streaming.publisher.sent.length >= 30, { what: "the good ones" });
    expect(streaming.publisher.sent.map(({ key }) => key)).not.toContain("bad");
    broken = false;
    await until(() => streaming.publisher.sent.length >= 60, { what: "the bad ones", timeoutMs: 20_000 });
    const bad = streaming.publisher.sent.filter(({ key }) => key === "bad").map(({ n }) => n);
    expect(bad).toEqual(series("bad", 30).map(({ n }) => n));
    expect(
      verdict(
        streaming.publisher,
        new Map([
          ["bad", 30],
          ["good", 30],
        ]),
      ),
    ).toEqual(NONE);
  }, 60_000);
});
