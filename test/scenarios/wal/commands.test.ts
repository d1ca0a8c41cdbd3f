import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { publishEach } from "../../../src/core/publish-each.ts";
import type { DeadLetter, PublishResult } from "../../../src/core/contracts.ts";
import { PostgresLanePort } from "../../../src/stores/postgres/postgres-lane-port.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { series } from "../support/outbox-database.ts";
import { numberedOf } from "../support/recording-publisher.ts";
import { type Streaming, verdict, walScene, writers } from "../support/wal-scene.ts";

const NONE = { lost: 0, doubled: 0, reordered: 0 };
const FAILED: PublishResult = { status: "failed", error: new Error("not now") };
const NEVER: PublishResult = { status: "rejected", error: new Error("never") };

const placeOf = ({ relay, stream, position, id }: DeadLetter) => ({ relay, stream, position, id });

/** What people and maintenance do to a relay whose messages come by the stream. */
describe.skipIf(!hasPostgres())("while a relay streams under load", () => {
  const scene = walScene();
  const allOf = (streaming: Streaming, load: ReturnType<typeof writers>) =>
    until(() => verdict(streaming.publisher, load.committed).lost === 0, { what: "the rest", timeoutMs: 30_000 });

  it.each(["a position", "a time"])(
    "a rewind to %s sends again what came after it, once and in order",
    async (to) => {
      const store = await scene.open();
      const streaming = await scene.start(store);
      await streaming.streams();
      const load = writers(scene.url, store, 3);
      const { sent } = streaming.publisher;
      await until(() => sent.length > 100, { what: "messages" });
      const [row] = await scene.query<{ position: string; at: Date }>(
        "select position::text, date_trunc('milliseconds', created_at) as at from txbox.message order by position offset 60 limit 1",
      );
      const before = sent.length;
      await store.admin.rewind("r", to === "a time" ? { time: row!.at } : { position: BigInt(row!.position) });
      const [first] = await scene.query<{ position: string }>(
        "select min(position)::text as position from txbox.message where created_at >= $1 or ($2 and position >= $3)",
        [to === "a time" ? row!.at : new Date(8.64e12), to === "a position", row!.position],
      );
      await until(() => sent.length > before + 200, { what: "what was rewound" });
      await streaming.streams();
      await sleep(500);
      await load.stop();
      await allOf(streaming, load);
      await sleep(500);
      // What went out before the rewind and lies behind its point came twice, and everything else once.
      const times = Map.groupBy(sent, ({ id }) => id);
      const twice = [...times.values()].filter((some) => some.length > 1);
      expect(twice.length).toBeGreaterThan(20);
      for (const [one, two, ...more] of twice) {
        expect(more).toEqual([]);
        expect(one!.position).toBeGreaterThanOrEqual(BigInt(first!.position));
        expect(sent.indexOf(two!)).toBeGreaterThanOrEqual(before);
      }
      const { doubled, ...rest } = verdict(streaming.publisher, load.committed);
      expect([doubled, rest]).toEqual([twice.length, { lost: 0, reordered: 0 }]);
      const rewound = sent.slice(0, before).filter(({ position }) => position >= BigInt(first!.position));
      expect(rewound.filter(({ id }) => times.get(id)!.length !== 2)).toEqual([]);
      // The repeats of a key are in order too, and so is what follows them.
      for (const [key, its] of Map.groupBy(sent, (one) => one.key)) {
        const last = [...new Map(its.map(({ n }, i) => [n, i]))].toSorted(([a], [b]) => a - b).map(([, i]) => i);
        expect(last, String(key)).toEqual(last.toSorted((a, b) => a - b));
      }
    },
    60_000,
  );

  it("dead letters are edited, requeued and discarded, and everything else streams on", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store, { onDead: "block" });
    await streaming.streams();
    const { publisher } = streaming;
    let broken = true;
    publisher.rule = ({ key, n }) => (broken && n === 3 && /^(edit|requeue|discard)/.test(key!) ? NEVER : undefined);
    const load = writers(scene.url, store, 2);
    const keys = ["edit-1", "edit-2", "requeue-1", "requeue-2", "discard-1", "discard-2"];
    for (const key of keys) await scene.enqueue(store, series(key, 5));
    const dead = () => store.admin.dead({ relay: "r", limit: 100 });
    await until(async () => (await dead()).length === keys.length, { what: "dead letters", timeoutMs: 20_000 });
    const edited = new Map<string, string>();
    const before = publisher.before;
    publisher.before = (messages, signal) => {
      for (const message of messages)
        if (message.key?.startsWith("edit") === true)
          edited.set(`${message.key}/${numberedOf(message).n}`, String(message.body));
      return before(messages, signal);
    };
    broken = false;
    for (const letter of await dead()) {
      const key = letter.key!;
      if (key.startsWith("edit"))
        await store.admin.edit({ relay: "r", position: letter.position }, { payload: { key, n: 3, edited: true } });
      if (key.startsWith("discard")) await store.admin.discard({ letters: [placeOf(letter)] });
      else await store.admin.requeue({ letters: [placeOf(letter)] });
    }
    await until(() => keys.every((key) => publisher.firsts(key).includes(5)), {
      what: "their keys",
      timeoutMs: 20_000,
    });
    await streaming.streams();
    await sleep(300);
    await load.stop();
    await allOf(streaming, load);
    for (const key of keys) {
      const numbers = publisher.sent.filter((one) => one.key === key).map(({ n }) => n);
      expect(numbers, key).toEqual(key.startsWith("discard") ? [1, 2, 4, 5] : [1, 2, 3, 4, 5]);
    }
    expect([edited.get("edit-1/3"), edited.get("edit-2/3")].map((body) => JSON.parse(body!) as object)).toEqual([
      { key: "edit-1", n: 3, edited: true },
      { key: "edit-2", n: 3, edited: true },
    ]);
    expect(verdict(publisher, load.committed)).toEqual(NONE);
    expect(streaming.lost()).toBeUndefined();
  }, 60_000);

  it("segments are dropped behind it by maintenance, again and again", async () => {
    await scene.open();
    const store = scene.openStore({ segmentMs: 200, retentionMs: 200 });
    const streaming = await scene.start(store, { backoff: { baseMs: 20, maxMs: 50 } });
    await streaming.streams();
    // Failed now and then, so that something is parked while its segment goes.
    const failed = new Set<string>();
    streaming.publisher.rule = ({ key, n }) => {
      if (n % 20 !== 7 || failed.has(`${key}/${n}`)) return undefined;
      failed.add(`${key}/${n}`);
      return FAILED;
    };
    const load = writers(scene.url, store, 3);
    let [rotated, dropped] = [0, 0];
    const begun = performance.now();
    const isEnough = () => performance.now() - begun > 4000 && rotated > 5 && dropped > 3 && failed.size > 5;
    while (!isEnough() && performance.now() - begun < 40_000) {
      const report = await store.maintenance.run();
      rotated += Number(report.rotated);
      dropped += report.droppedSegments.length;
      await sleep(100);
    }
    await load.stop();
    await allOf(streaming, load);
    await sleep(300);
    expect(rotated).toBeGreaterThan(5);
    expect(dropped).toBeGreaterThan(3);
    expect(failed.size).toBeGreaterThan(5);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    expect(streaming.lost()).toBeUndefined();
  }, 60_000);

  it("attempts that take long hold up their keys only, and are not made again beside themselves", async () => {
    const store = await scene.open();
    const made: { key: string | null; n: number; at: "begun" | "ended" }[] = [];
    const publisher = publishEach(async (message) => {
      const { key, n } = numberedOf(message);
      made.push({ key, n, at: "begun" });
      if (key === "slow") await sleep(2500);
      made.push({ key, n, at: "ended" });
    });
    const streaming = await scene.start(store, { publisher });
    await streaming.streams();
    const load = writers(scene.url, store, 2);
    await scene.enqueue(store, series("slow", 3));
    const of = (which: string) => made.filter(({ key }) => key === which).map(({ n, at }) => `${n} ${at}`);
    await until(() => of("slow").length === 1, { what: "the slow attempt" });
    const others = made.length;
    await until(() => made.length > others + 100, { what: "the others meanwhile" });
    expect(of("slow")).toEqual(["1 begun"]);
    // A stream that ends meanwhile, and one whose slot is gone.
    await scene.cut();
    await until(() => of("slow").includes("2 begun"), { what: "the next of the slow key", timeoutMs: 20_000 });
    await scene.dropSlot();
    await until(() => of("slow").includes("3 ended"), { what: "all of the slow key", timeoutMs: 20_000 });
    expect(of("slow")).toEqual([1, 2, 3].flatMap((n) => [`${n} begun`, `${n} ended`]));
    await streaming.streams();
    await load.stop();
    const ended = () => made.filter(({ key, at }) => key !== "slow" && at === "ended");
    await until(() => ended().length >= load.total, { what: "the rest", timeoutMs: 20_000 });
    for (const [key, count] of load.committed) {
      expect(
        ended()
          .filter((one) => one.key === key)
          .map(({ n }) => n),
      ).toEqual(Array.from({ length: count }, (_, i) => i + 1));
    }
  }, 60_000);

  it("a relay that is paused sends nothing, and goes on with new messages and failed keys when it is resumed", async () => {
    const store = await scene.open();
    const streaming = await scene.start(store, { backoff: { baseMs: 50, maxMs: 100 }, maxAttempts: 1000 });
    await streaming.streams();
    const { publisher } = streaming;
    let broken = true;
    publisher.rule = ({ key }) => (broken && key === "bad" ? FAILED : undefined);
    const load = writers(scene.url, store, 2);
    await scene.enqueue(store, series("bad", 5));
    await until(() => publisher.sent.length > 50, { what: "messages" });
    for (let round = 0; round < 2; round++) {
      await store.admin.pause("r");
      await until(() => streaming.relay.state().session?.paused === true, { what: "the pause" });
      // What was in hand goes out.
      await sleep(300);
      const { calls } = publisher;
      await sleep(1500);
      expect(publisher.calls).toBe(calls);
      if (round === 1) broken = false;
      await store.admin.resume("r");
      await until(() => publisher.calls > calls + 5, { what: "the messages after the pause" });
    }
    await until(() => publisher.firsts("bad").includes(5), { what: "the failed key", timeoutMs: 20_000 });
    await load.stop();
    await allOf(streaming, load);
    await sleep(300);
    load.committed.set("bad", 5);
    expect(verdict(publisher, load.committed)).toEqual(NONE);
    expect(streaming.lost()).toBeUndefined();
  }, 60_000);

  it("its cursor gets a fresh row now and then, without a message twice", async () => {
    const entering = vi.spyOn(PostgresLanePort.prototype, "enter");
    onTestFinished(() => entering.mockRestore());
    const store = await scene.open();
    const streaming = await scene.start(store, { backoff: { baseMs: 20, maxMs: 50 } });
    await streaming.streams();
    const idOf = async () => (await scene.query<{ id: string }>("select id::text from txbox.cursor"))[0]!.id;
    const ids = [await idOf()];
    const load = writers(scene.url, store, 2);
    for (let round = 0; round < 5; round++) {
      const before = streaming.publisher.sent.length;
      await until(() => streaming.publisher.sent.length > before + 50, { what: "the stream" });
      // As if it had been written to so often: minutes of streaming.
      const entered = entering.mock.settledResults.at(-1)!;
      if (entered.type === "fulfilled") for (const cursor of entered.value.parts) cursor.writes = 10_000;
      await until(async () => (await idOf()) !== ids.at(-1), { what: "a fresh row", timeoutMs: 20_000 });
      ids.push(await idOf());
    }
    const before = streaming.publisher.sent.length;
    await until(() => streaming.publisher.sent.length > before + 50, { what: "the stream" });
    await load.stop();
    await allOf(streaming, load);
    await sleep(300);
    expect(verdict(streaming.publisher, load.committed)).toEqual(NONE);
    expect(streaming.lost()).toBeUndefined();
    await until(async () => (await store.admin.relays())[0]?.pending === 0, { what: "the anchors" });
    expect((await store.admin.relays())[0]?.published).toBe(BigInt(load.total));
    // It streams again, with the slot that it had.
    await until(async () => (await store.wal.status()).relays[0]?.processes[0]?.source === "stream", {
      what: "the status",
    });
  }, 90_000);
});
