import assert from "node:assert/strict";
import { eventuallyTrue } from "../eventually.ts";
import { dead, join, joined, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range } from "./enqueuing.ts";
import type { RestoredCopy, StoreCase, StoreContext } from "./store-context.ts";

const role = "restore";
const needs = ["restore"] as const;

async function restored(context: StoreContext): Promise<RestoredCopy> {
  const copy = await context.restore?.();
  assert.ok(copy !== undefined, "the feature restore brings restore");
  return copy;
}

async function rebased(context: StoreContext): Promise<RestoredCopy> {
  const copy = await restored(context);
  await copy.rebase();
  return copy;
}

/** A copy of the database on another server: recognised, refused, and usable after `rebase`. */
export const restoreCases: readonly StoreCase[] = [
  {
    role,
    name: "refuses to work on a restored copy",
    needs,
    async run(context) {
      const consumer = await joined(context.store);
      await enqueue(context, ...numbered(1, 2));
      await consumer.drain();
      await consumer.session.leave();
      const copy = await restored(context);
      await assert.rejects(join(copy.store), { code: "restored_copy" });
      await assert.rejects(join(copy.store), { code: "restored_copy" });
      // The original does not notice.
      await enqueue(context, message(3));
      const original = await joined(context.store);
      assert.deepEqual(payloads(await original.take(1)), [3]);
    },
  },
  {
    role,
    name: "refuses a relay that is new on the copy, and serves it the whole log after rebase",
    needs,
    async run(context) {
      await enqueue(context, ...numbered(1, 3));
      const copy = await restored(context);
      await assert.rejects(join(copy.store, { relay: "new" }), { code: "restored_copy" });
      assert.deepEqual(await copy.store.admin.relays(), []);
      await copy.rebase();
      await enqueue(copy, ...numbered(4, 5));
      const there = await joined(copy.store, { relay: "new" });
      assert.deepEqual(payloads(await there.take(5)), range(1, 5));
      await there.session.tend();
      assert.deepEqual(await there.drain(), []);
    },
  },
  {
    role,
    name: "goes on after rebase with what was pending, in order, and with what comes",
    needs: [...needs, "promptProgress"],
    async run(context) {
      const consumer = await joined(context.store, { batch: { messages: 2, bytes: 1_000_000 } });
      await enqueue(context, ...numbered(1, 7));
      await consumer.step();
      await consumer.session.leave();
      const copy = await rebased(context);
      await enqueue(copy, ...numbered(8, 9));
      const there = await joined(copy.store);
      assert.deepEqual(payloads(await there.take(7)), range(3, 9));
      await there.session.tend();
      assert.deepEqual(await there.drain(), []);
      await enqueue(copy, message(10));
      assert.deepEqual(payloads(await there.take(1)), [10]);
    },
  },
  {
    role,
    name: "delivers nothing twice after rebase that was settled before it",
    needs,
    async run(context) {
      const consumer = await joined(context.store);
      await enqueue(context, ...numbered(1, 3));
      await consumer.drain();
      const copy = await rebased(context);
      const there = await joined(copy.store);
      await there.session.tend();
      assert.deepEqual(await there.drain(), []);
    },
  },
  {
    role,
    name: "keeps parked messages and dead letters, in order",
    needs,
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = ({ type }, n) => (type === "bad" ? retry(n + 1) : type === "dead" ? dead(1, true) : PUBLISHED);
      await enqueue(
        context,
        message(1, { type: "bad" }),
        message(2),
        message("d1", { key: "d", type: "dead" }),
        message("d2", { key: "d" }),
      );
      await consumer.step();
      await enqueue(context, message(3));
      await consumer.session.leave();
      const copy = await rebased(context);
      const there = await joined(copy.store);
      assert.deepEqual(payloads(await there.take(3)), [1, 2, 3]);
      assert.equal(await copy.store.admin.requeue({ key: "d" }), 1);
      await enqueue(copy, message("d3", { key: "d" }));
      assert.deepEqual(payloads(await there.take(3)), ["d1", "d2", "d3"]);
    },
  },
  {
    role,
    name: "delivers after rebase what was rewound before it, a dead letter among it",
    needs,
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = ({ type }) => (type === "dead" ? dead() : PUBLISHED);
      await enqueue(context, message(1), message(2, { type: "dead" }), message(3));
      await consumer.step();
      await consumer.session.leave();
      await context.store.admin.rewind("r", "earliest");
      const copy = await rebased(context);
      const there = await joined(copy.store);
      assert.deepEqual(payloads(await there.take(3)), [1, 2, 3]);
    },
  },
  {
    role,
    name: "shares lanes after rebase as before",
    needs: ["restore", "sharing"],
    async run(context) {
      const consumer = await joined(context.store);
      await enqueue(context, message(1));
      await consumer.drain();
      const copy = await rebased(context);
      const [a, b] = [await joined(copy.store), await joined(copy.store)];
      // No error may be hidden here: what a copy did not bring along must not cause errors when lanes are split.
      let counts: number[] = [];
      for (let round = 0; round < 100 && counts.join() !== "32,32"; round++) {
        counts = [];
        for (const one of [a, b]) {
          await one.session.tend();
          await one.drain();
          counts.push((await one.session.tend()).lanes);
        }
      }
      assert.deepEqual(counts, [32, 32]);
      await enqueue(copy, ...range(1, 20).map((n) => message(n, { key: `k${n}` })));
      await eventuallyTrue(async () => {
        await a.drain();
        await b.drain();
        assert.equal(a.published.length + b.published.length, 20);
      });
    },
  },
  {
    role,
    name: "can be rewound after rebase",
    needs: ["restore", "log", "promptProgress"],
    async run(context) {
      const consumer = await joined(context.store);
      await enqueue(context, ...numbered(1, 3));
      await consumer.drain();
      const copy = await rebased(context);
      await enqueue(copy, message(4));
      const there = await joined(copy.store);
      assert.deepEqual(payloads(await there.take(1)), [4]);
      await copy.store.admin.rewind("r", "earliest");
      await there.session.tend();
      let steps = 0;
      while (steps < 30 && (await there.step())) steps++;
      assert.ok(steps < 30, "the relay finds its rest");
      assert.equal(payloads(there.published).filter((n) => n === 4).length, 2);
    },
  },
];
