import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { RelayInfo } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import { eventuallyTrue } from "../eventually.ts";
import { dead, joined, PUBLISHED, retry } from "./consumer.ts";
import { begin, enqueue, enqueueIn, message, numbered, range, sorted } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "figures";

async function figures(context: StoreContext, relay = "r"): Promise<RelayInfo> {
  const found = (await context.store.admin.relays()).find(({ name }) => name === relay);
  assert.ok(found !== undefined);
  return found;
}

async function enqueueMany(context: StoreContext, count: number): Promise<void> {
  for (let from = 1; from <= count; from += 4000) {
    const to = Math.min(count, from + 3999);
    await enqueue(context, ...range(from, to).map((n) => message(n, { key: `k${n % 50}` })));
  }
}

/** What monitoring reads; none of it may count the whole log. */
export const figuresCases: readonly StoreCase[] = [
  {
    role,
    name: "counts pending, published, parked, blocked and dead exactly",
    needs: ["promptProgress"],
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = ({ type }, n) => (type === "bad" ? retry(n + 1, 60_000) : type === "dead" ? dead() : PUBLISHED);
      await enqueue(
        context,
        ...numbered(1, 3, { key: "a" }),
        message(4, { type: "bad" }),
        message(5),
        message(6, { key: "b", type: "dead" }),
      );
      const before = await figures(context);
      assert.deepEqual([before.pending, before.pendingEstimated, before.published], [6, false, 0n]);
      await consumer.drain();
      await enqueue(context, ...numbered(7, 8, { key: "c" }));
      const after = await figures(context);
      assert.deepEqual([after.published, after.pending, after.parked, after.blockedKeys, after.dead], [3n, 4, 2, 1, 1]);
    },
  },
  {
    role,
    name: "counts what is left in the middle of a backlog",
    async run(context) {
      await enqueue(context, ...numbered(1, 10));
      const consumer = await joined(context.store, { batch: { messages: 3, bytes: 1_000_000 } });
      const left: number[] = [];
      for (let i = 0; i < 3; i++) {
        await consumer.step();
        left.push((await figures(context)).pending);
      }
      assert.deepEqual(left, [7, 4, 1]);
      await enqueue(context, message(11));
      assert.equal((await figures(context)).pending, 2);
    },
  },
  {
    role,
    name: "counts late commits, and nothing that is not committed",
    needs: ["concurrency"],
    async run(context) {
      const open = await begin(context);
      await enqueueIn(context, open.tx, numbered(1, 3, { key: "late" }));
      const consumer = await joined(context.store);
      await enqueue(context, message(4));
      assert.equal((await figures(context)).pending, 1);
      await consumer.drain();
      assert.equal((await figures(context)).pending, 0);
      await open.commit();
      const late = await figures(context);
      assert.equal(late.pending, 3);
      assert.ok(late.oldestPendingAgeMs !== null);
      await consumer.drain();
      assert.equal((await figures(context)).pending, 0);
    },
  },
  {
    role,
    name: "counts for a relay only its streams",
    needs: ["log", "promptProgress"],
    async run(context) {
      await joined(context.store, { relay: "all" });
      const some = await joined(context.store, { relay: "some", streams: ["a"] });
      await enqueue(context, ...numbered(1, 4, { stream: "a" }), ...numbered(5, 10, { stream: "b" }));
      assert.equal((await figures(context, "all")).pending, 10);
      assert.equal((await figures(context, "some")).pending, 4);
      await some.drain();
      const after = await figures(context, "some");
      assert.deepEqual([after.pending, after.published, after.oldestPendingAgeMs], [0, 4n, null]);
    },
  },
  {
    role,
    name: "tells the age of the oldest message that waits, parked ones included",
    async run(context) {
      const consumer = await joined(context.store);
      assert.equal((await figures(context)).oldestPendingAgeMs, null);
      consumer.judge = ({ type }, n) => (type === "bad" ? retry(n + 1, 60_000) : PUBLISHED);
      await enqueue(context, message(1, { type: "bad" }));
      await sleep(200);
      await consumer.drain();
      await enqueue(context, message(2, { key: "other" }));
      const withParked = (await figures(context)).oldestPendingAgeMs ?? 0;
      assert.ok(withParked >= 150 && withParked < 60_000, `the oldest is ${withParked} ms old`);
      await consumer.drain();
      assert.ok(((await figures(context)).oldestPendingAgeMs ?? 0) >= 150);
    },
  },
  {
    role,
    name: "counts the age of a scheduled message from when it was due",
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = (_, n) => retry(n + 1, 60_000);
      const deliverAt = new Date(Date.now() + 1500);
      await enqueue(context, message("later", { key: "a", deliverAt }));
      /** From when it was enqueued it would be 1.5 s more. */
      const most = () => Date.now() - deliverAt.getTime() + 1000;
      const age = async () => {
        const startedAt = performance.now();
        const { oldestPendingAgeMs } = await figures(context);
        const [relay] = (await context.store.admin.figures()).relays;
        const apartMs = performance.now() - startedAt;
        assert.ok(Math.abs((relay?.oldestPendingAgeMs ?? 0) - (oldestPendingAgeMs ?? 0)) < 1000 + apartMs);
        return oldestPendingAgeMs;
      };
      const early = await age();
      // Its time may have come by then on a busy machine.
      if (Date.now() < deliverAt.getTime()) assert.equal(early, null);
      await sleep(1500);
      await eventuallyTrue(async () => {
        await consumer.session.tend();
        assert.equal((await figures(context)).pending, 1);
      });
      const ready = await age();
      assert.ok(ready !== null && ready < most(), `${ready} ms when it is ready`);
      await consumer.drain();
      const parked = await age();
      assert.equal((await figures(context)).parked, 1);
      assert.ok(parked !== null && parked < most(), `${parked} ms when it is parked`);
    },
  },
  {
    role,
    name: "shows who holds how many lanes, and for how long",
    async run(context) {
      const consumer = await joined(context.store, { owner: "me", leaseMs: 20_000 });
      const { lanes } = await figures(context);
      assert.deepEqual(
        lanes.map(({ owner, lanes: count }) => [owner, count]),
        [["me", LANES]],
      );
      assert.ok((lanes[0]?.leaseMs ?? 0) > 5000 && (lanes[0]?.leaseMs ?? 0) <= 20_000);
      await consumer.session.leave();
      const [free] = (await figures(context)).lanes;
      assert.equal(free?.owner, null);
      assert.ok((free?.leaseMs ?? 1) <= 0);
    },
  },
  {
    role,
    name: "estimates a large backlog and says so",
    needs: ["promptProgress"],
    async run(context) {
      const consumer = await joined(context.store, { batch: { messages: 1000, bytes: 10_000_000 } });
      await enqueueMany(context, 14_000);
      const large = await figures(context);
      assert.equal(large.pendingEstimated, true);
      assert.ok(large.pending >= 10_000 && large.pending <= 21_000, `${large.pending} of 14000`);
      for (let i = 0; i < 6; i++) await consumer.step();
      const left = await figures(context);
      assert.deepEqual([left.pending, left.pendingEstimated, left.published], [8000, false, 6000n]);
    },
  },
  {
    role,
    name: "shows a message of a relay behind any number that are for others",
    async run(context) {
      await joined(context.store, { relay: "rare", streams: ["payouts"] });
      await enqueueMany(context, 10_050);
      const without = await figures(context, "rare");
      assert.deepEqual([without.pending, without.oldestPendingAgeMs], [0, null]);
      await enqueue(context, message("rare", { stream: "payouts" }));
      await sleep(50);
      const { pending, oldestPendingAgeMs } = await figures(context, "rare");
      assert.ok(pending >= 1, `${pending} are pending`);
      assert.ok((oldestPendingAgeMs ?? 0) >= 40, `the oldest is ${oldestPendingAgeMs} ms old`);
    },
  },
  {
    role,
    name: "estimates across segments of the log",
    needs: ["retention"],
    async run(context) {
      await joined(context.store);
      await enqueueMany(context, 11_000);
      const fast = context.withRetention?.({ segmentMs: 1, retentionMs: 3_600_000 });
      await sleep(5);
      assert.equal((await fast?.maintenance.run())?.rotated, true);
      await enqueue(context, message("in the next segment"));
      const { pending, pendingEstimated } = await figures(context);
      assert.equal(pendingEstimated, true);
      assert.ok(pending >= 10_000 && pending <= 22_000, `${pending} of 11001`);
    },
  },
  {
    role,
    name: "shows relays among the figures of the store as they are shown alone",
    needs: ["promptProgress"],
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = ({ type }, n) => (type === "bad" ? retry(n + 1, 60_000) : PUBLISHED);
      await enqueue(context, message(1), message(2, { key: "b", type: "bad" }));
      await consumer.drain();
      const [alone] = await context.store.admin.relays();
      const all = await context.store.admin.figures();
      const timeless = ({ oldestPendingAgeMs, lanes, ...rest }: RelayInfo) => ({
        ...rest,
        waits: oldestPendingAgeMs !== null,
        owners: lanes.map(({ owner }) => owner),
      });
      assert.deepEqual(
        all.relays.map(timeless).map(({ holdsBackRetention, ...rest }: Timeless) => [holdsBackRetention, rest]),
        [[false, timeless(alone!)]],
      );
      assert.ok(all.logBytes > 0 && all.receiptBytes > 0, `log ${all.logBytes}, receipts ${all.receiptBytes}`);
    },
  },
  {
    role,
    name: "counts what is scheduled, and says when the next one is due",
    async run(context) {
      assert.deepEqual((await context.store.admin.figures()).scheduled, {
        count: 0,
        estimated: false,
        nextAt: null,
      });
      const [soon, later] = [3_600_000, 7_200_000].map((ms) => new Date(Date.now() + ms));
      await enqueue(context, message(1, { deliverAt: later! }), message(2, { deliverAt: soon! }), message(3));
      assert.deepEqual((await context.store.admin.figures()).scheduled, { count: 2, estimated: false, nextAt: soon });
    },
  },
  {
    role,
    name: "names streams that no relay reads",
    async run(context) {
      await enqueue(context, message(1, { stream: "a" }), message(2, { stream: "b" }), message(3, { stream: "c" }));
      await sleep(50);
      const unread = async () => {
        const { unread: found } = await context.store.admin.figures();
        assert.ok(found.every(({ oldestAgeMs }) => oldestAgeMs >= 40 && oldestAgeMs < 60_000));
        return sorted(found.map(({ stream }) => stream));
      };
      assert.deepEqual(await unread(), ["a", "b", "c"], "there is no relay at all");
      await joined(context.store, { relay: "a", streams: ["a"] });
      assert.deepEqual(await unread(), ["b", "c"]);
      await joined(context.store, { relay: "c", streams: ["c"] });
      assert.deepEqual(await unread(), ["b"]);
    },
  },
  {
    role,
    name: "counts receipts that failed and were not made good, by consumer",
    async run(context) {
      const { ledger, admin } = context.store;
      const receipt = (consumer: string, n: number) => ({
        consumer,
        messageId: `m-${n}`,
        type: "t",
        correlationId: null,
      });
      assert.deepEqual((await admin.figures()).failedReceipts, []);
      await ledger.fail(receipt("a", 1), "once");
      await ledger.fail(receipt("a", 1), "twice");
      await ledger.fail(receipt("a", 2), "once");
      await ledger.fail(receipt("b", 1), "once");
      await ledger.transaction((tx) => ledger.receive(tx, receipt("b", 2), "processed"));
      assert.deepEqual((await admin.figures()).failedReceipts, [
        { consumer: "a", count: 2 },
        { consumer: "b", count: 1 },
      ]);
      await ledger.transaction((tx) => ledger.receive(tx, receipt("a", 2), "processed"));
      assert.deepEqual((await admin.figures()).failedReceipts, [
        { consumer: "a", count: 1 },
        { consumer: "b", count: 1 },
      ]);
    },
  },
  {
    role,
    name: "names the relays that hold back retention",
    needs: ["retention"],
    async run(context) {
      const store = context.withRetention?.({ segmentMs: 1, retentionMs: 0 });
      assert.ok(store !== undefined);
      const done = await joined(context.store, { relay: "done" });
      await joined(context.store, { relay: "behind" });
      await enqueue(context, ...numbered(1, 4));
      await done.drain();
      const holding = async () =>
        (await store.admin.figures()).relays.filter((relay) => relay.holdsBackRetention).map(({ name }) => name);
      assert.deepEqual(await holding(), []);
      await eventuallyTrue(async () => {
        await store.maintenance.run();
        assert.deepEqual(await holding(), ["behind"]);
      });
      await store.admin.rewind("behind", "now");
      assert.deepEqual(await holding(), []);
    },
  },
];

type Timeless = Record<string, unknown> & { holdsBackRetention?: boolean };
