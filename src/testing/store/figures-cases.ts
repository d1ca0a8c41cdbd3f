import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { RelayInfo } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import { dead, joined, PUBLISHED, retry } from "./consumer.ts";
import { begin, enqueue, enqueueIn, message, numbered, range } from "./enqueuing.ts";
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
    needs: ["log"],
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
];
