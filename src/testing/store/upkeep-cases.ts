import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Store } from "../../core/contracts.ts";
import { background, eventuallyTrue } from "../eventually.ts";
import { dead, joined, PUBLISHED, retry, type Consumer } from "./consumer.ts";
import { begin, enqueue, enqueueIn, message, numbered, payloads, range } from "./enqueuing.ts";
import type { AnyTx, Retention, StoreCase, StoreContext } from "./store-context.ts";

const migrator = "migrator";
const role = "maintenance";
const needs = ["retention"] as const;

/** Rotates as soon as there is anything, and drops as soon as it may. */
function fast(context: StoreContext, more: Partial<Retention> = {}): Store<AnyTx> {
  const store = context.withRetention?.({ segmentMs: 1, retentionMs: 0, ...more });
  assert.ok(store !== undefined, "the feature retention brings withRetention");
  return store;
}

/** What others do on the server may hold back both. */
const PATIENT = { timeoutMs: 60_000 };

async function rotate(store: Store<AnyTx>): Promise<void> {
  await eventuallyTrue(async () => {
    assert.equal((await store.maintenance.run()).rotated, true);
  }, PATIENT);
}

/** Runs maintenance until it has dropped something; it may rotate on the way. */
async function drop(store: Store<AnyTx>): Promise<void> {
  await eventuallyTrue(async () => {
    const report = await store.maintenance.run();
    assert.notDeepEqual(report.droppedSegments, [], JSON.stringify(report));
  }, PATIENT);
}

/** Migrations, rotation and retention. */
export const upkeepCases: readonly StoreCase[] = [
  {
    role: migrator,
    name: "is content with a migrated schema and has nothing more to do",
    async run({ store }) {
      await store.migrator.check();
      assert.deepEqual(await store.migrator.pending(), []);
      assert.deepEqual(await store.migrator.migrate(), []);
    },
  },
  {
    role: migrator,
    name: "names a missing schema, and makes it",
    async run(context) {
      await context.spoilSchema("missing");
      const { migrator: steps } = context.store;
      await assert.rejects(steps.check(), { code: "schema_missing" });
      await assert.rejects(enqueue(context, message(1)), { code: "schema_missing" });
      assert.ok((await steps.pending()).length > 0);
      const done = await Promise.all([steps.migrate(), context.another().migrator.migrate()]);
      assert.equal(done.filter((applied) => applied.length > 0).length, 1, "one of them did it");
      await steps.check();
    },
  },
  {
    role: migrator,
    name: "names a schema that is older than the code",
    async run(context) {
      await context.spoilSchema("older");
      await assert.rejects(context.store.migrator.check(), { code: "schema_outdated" });
    },
  },
  {
    role: migrator,
    name: "refuses a schema that is newer than the code",
    async run(context) {
      await context.spoilSchema("newer");
      await assert.rejects(context.store.migrator.check(), { code: "schema_too_new" });
      await assert.rejects(context.store.migrator.migrate(), { code: "schema_too_new" });
    },
  },
  {
    role,
    name: "runs on an empty store, again and again",
    async run({ store }) {
      for (let i = 0; i < 2; i++) {
        const report = await store.maintenance.run();
        assert.deepEqual([report.rotated, report.droppedSegments], [false, []]);
      }
    },
  },
  {
    role,
    name: "keeps order and loses nothing when the log goes on in another segment",
    needs,
    async run(context) {
      const store = fast(context, { retentionMs: 3_600_000 });
      const consumer = await joined(context.store, { batch: { messages: 2, bytes: 1_000_000 } });
      for (let n = 0; n < 3; n++) {
        await enqueue(context, ...numbered(n * 5 + 1, n * 5 + 5));
        await consumer.step();
        await sleep(3);
        await rotate(store);
      }
      await enqueue(context, message(16));
      await consumer.drain();
      assert.deepEqual(payloads(consumer.published), range(1, 16));
      const positions = consumer.published.map(({ position }) => position);
      assert.ok(positions.every((position, i) => i === 0 || position > (positions[i - 1] ?? 0n)));
    },
  },
  {
    role,
    name: "drops what every relay has settled, and says who holds the rest back",
    needs,
    async run(context) {
      const store = fast(context);
      const [done, behind] = [
        await joined(context.store, { relay: "done" }),
        await joined(context.store, { relay: "behind" }),
      ];
      const sent = await enqueue(context, ...numbered(1, 4));
      await done.drain();
      await sleep(3);
      await rotate(store);
      await eventuallyTrue(async () => {
        const report = await store.maintenance.run();
        assert.deepEqual([report.droppedSegments, report.heldBackBy], [[], ["behind"]]);
      });
      assert.deepEqual(payloads(await behind.drain()), range(1, 4));
      await drop(store);
      assert.deepEqual(await context.store.admin.find({ id: sent[0]?.id ?? "" }), []);
      await enqueue(context, message(5));
      assert.deepEqual(payloads(await behind.take(1)), [5]);
      assert.deepEqual(payloads(await done.take(1)), [5]);
    },
  },
  {
    role,
    name: "is not held back by a relay whose streams are not among what it drops",
    needs,
    async run(context) {
      const store = fast(context);
      const consumer = await joined(context.store, { streams: ["other"] });
      await enqueue(context, ...numbered(1, 3));
      await consumer.drain();
      await sleep(3);
      await drop(store);
      await enqueue(context, message(4, { stream: "other" }));
      assert.deepEqual(payloads(await consumer.take(1)), [4]);
    },
  },
  {
    role,
    name: "drops nothing that no relay has read yet",
    needs,
    async run(context) {
      const store = fast(context);
      await enqueue(context, ...numbered(1, 3));
      await sleep(3);
      await rotate(store);
      assert.deepEqual((await store.maintenance.run()).droppedSegments, []);
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), [1, 2, 3]);
    },
  },
  {
    role,
    name: "keeps parked messages when their segment is dropped, and delivers them in order",
    needs,
    async run(context) {
      const store = fast(context);
      let broken = true;
      const consumer = await joined(context.store);
      consumer.judge = (one, n) => (broken && one.key === "k" ? retry(n + 1, 20) : PUBLISHED);
      const sent = await enqueue(context, ...numbered(1, 4), message("other", { key: "other" }));
      await consumer.drain();
      await sleep(3);
      await drop(store);
      await enqueue(context, message(5));
      const [info] = await context.store.admin.find({ id: sent[0]?.id ?? "" });
      assert.equal(info?.status, "retrying");
      broken = false;
      await consumer.take(5);
      assert.deepEqual(payloads(consumer.published), ["other", ...range(1, 5)]);
      await store.maintenance.run();
      assert.deepEqual(await context.store.admin.find({ id: sent[0]?.id ?? "" }), []);
    },
  },
  {
    role,
    name: "can requeue a dead letter whose segment was dropped",
    needs,
    async run(context) {
      const store = fast(context);
      const consumer = await joined(context.store, {}, { judge: () => dead() });
      await enqueue(context, message({ kept: true }, { headers: { own: "ü" } }));
      await consumer.drain();
      await sleep(3);
      await drop(store);
      assert.equal(await context.store.admin.requeue({ relay: "r" }), 1);
      consumer.judge = () => PUBLISHED;
      await consumer.session.tend();
      await store.maintenance.run();
      const [again] = await consumer.take(1);
      assert.deepEqual(payloads(again === undefined ? [] : [again]), [{ kept: true }]);
      assert.equal(again?.headers["own"], "ü");
    },
  },
  {
    role,
    name: "does not lose what was written before a rotation and committed after it",
    needs: ["retention", "concurrency"],
    async run(context) {
      const store = fast(context);
      const consumer = await joined(context.store);
      const open = await begin(context);
      await enqueueIn(context, open.tx, [message("open", { key: "open" })]);
      await enqueue(context, message(1));
      assert.deepEqual(payloads(await consumer.drain()), [1]);
      await sleep(3);
      await rotate(store);
      await enqueue(context, message(2));
      assert.deepEqual(payloads(await consumer.drain()), [2]);
      assert.deepEqual((await store.maintenance.run()).droppedSegments, []);
      await open.commit();
      assert.deepEqual((await store.maintenance.run()).droppedSegments, []);
      assert.deepEqual(payloads(await consumer.drain()), ["open"]);
      await drop(store);
      await enqueue(context, message(3));
      assert.deepEqual(payloads(await consumer.drain()), [3]);
    },
  },
  {
    role,
    name: "is not held back by a process that died, once others have shared its lanes",
    needs: ["retention", "sharing"],
    async run(context) {
      const store = fast(context);
      const dying = await joined(context.another(), { leaseMs: 1500 });
      const others = [await joined(context.store), await joined(context.another())];
      const lanesOf = async (consumer: Consumer) => {
        await consumer.drain();
        return (await consumer.session.tend()).lanes;
      };
      // All three have a share, so that each of the others lacks a part of it when one dies.
      await eventuallyTrue(async () => {
        for (const consumer of [dying, ...others]) assert.ok((await lanesOf(consumer)) >= 15);
      });
      const some = range(1, 40).map((n) => message(n, { key: `k${n}` }));
      await enqueue(context, ...some);
      for (const consumer of [dying, ...others]) await consumer.drain();
      await enqueue(context, ...some);
      await sleep(2000);
      // Both see its lanes before either takes some.
      for (const { session } of others) await session.tend();
      await eventuallyTrue(async () => {
        let lanes = 0;
        for (const consumer of others) lanes += await lanesOf(consumer);
        assert.equal(lanes, 64);
      });
      assert.equal((await context.store.admin.relays())[0]?.published, 80n);
      await sleep(3);
      await drop(store);
    },
  },
  {
    role,
    name: "does not stop writers while it rotates and drops",
    needs: ["retention", "concurrency"],
    async run(context) {
      const store = fast(context);
      const consumer = await joined(context.store);
      const seen = { rotations: 0, written: 0 };
      const writer = background(async () => {
        // On a slow machine the first rotation takes longer than all of them.
        while (seen.written < 60 || (seen.rotations === 0 && seen.written < 2000)) {
          await enqueue(context, message(seen.written + 1));
          seen.written++;
        }
      });
      const keeper = background(async () => {
        while (writer.running) seen.rotations += (await store.maintenance.run()).rotated ? 1 : 0;
      });
      while (writer.running) await consumer.drain();
      await writer.done;
      await consumer.drain();
      await keeper.done;
      assert.ok(seen.rotations > 0);
      assert.deepEqual(payloads(consumer.published), range(1, seen.written));
    },
  },
  {
    role,
    name: "may be run by several processes at once",
    needs: ["retention", "concurrency"],
    async run(context) {
      const stores = [fast(context), fast(context), fast(context)];
      const consumer = await joined(context.store);
      for (let n = 1; n <= 4; n++) {
        await enqueue(context, message(n));
        assert.deepEqual(payloads(await consumer.drain()), [n]);
        await sleep(3);
        await Promise.all(stores.map((store) => store.maintenance.run()));
      }
      await enqueue(context, message(5));
      assert.deepEqual(payloads(await consumer.drain()), [5]);
    },
  },
  {
    role,
    name: "drops at last what a relay without a process holds back, if told to",
    needs: [...needs, "promptProgress"],
    async run(context) {
      const store = fast(context, { abandonAfterMs: 50 });
      const consumer = await joined(context.store, { relay: "forgotten" });
      await enqueue(context, ...numbered(1, 3));
      await sleep(3);
      await rotate(store);
      await drop(store);
      await enqueue(context, message(4));
      assert.deepEqual(payloads(await consumer.take(1)), [4]);
    },
  },
];
