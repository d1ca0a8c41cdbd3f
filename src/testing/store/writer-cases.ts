import assert from "node:assert/strict";
import { createOutbox } from "../../outbox/outbox.ts";
import { joined } from "./consumer.ts";
import { begin, enqueue, enqueueIn, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase } from "./store-context.ts";

const role = "writer";

/** A message exists if and only if its transaction committed. */
export const writerCases: readonly StoreCase[] = [
  {
    role,
    name: "commits messages and the application's own data together",
    async run(context) {
      await context.transaction(async (tx) => {
        await context.note(tx, "before");
        await enqueueIn(context, tx, [message(1)]);
        await context.note(tx, "after");
      });
      assert.deepEqual(await context.notes(), ["before", "after"]);
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), [1]);
    },
  },
  {
    role,
    name: "rolls both back together",
    async run(context) {
      const failing = context.transaction(async (tx) => {
        await context.note(tx, "undone");
        await enqueueIn(context, tx, [message(1), message(2, { deliverAt: new Date(Date.now() + 100) })]);
        throw new Error("no");
      });
      await assert.rejects(failing, /no/);
      assert.deepEqual(await context.notes(), []);
      assert.deepEqual(await context.store.admin.find({ key: "k" }), []);
    },
  },
  {
    role,
    name: "undoes with a savepoint only what came after it",
    needs: ["savepoints"],
    async run(context) {
      await context.transaction(async (tx) => {
        await enqueueIn(context, tx, [message(1)]);
        await context.undo?.(tx, () => enqueueIn(context, tx, [message(2), message(3, { id: "chosen" })]));
        await enqueueIn(context, tx, [message(4, { id: "chosen" })]);
      });
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), [1, 4]);
    },
  },
  {
    role,
    name: "keeps the order of a batch, and of calls within a transaction",
    async run(context) {
      await context.transaction(async (tx) => {
        await enqueueIn(context, tx, numbered(1, 300));
        await enqueueIn(context, tx, [message(301)]);
        await enqueueIn(context, tx, [message(302, { id: "chosen" }), message(303), message(304, { id: "a" })]);
      });
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), range(1, 304));
    },
  },
  {
    role,
    name: "writes a chosen id once, in the same transaction and in others",
    async run(context) {
      const same = await context.transaction(async (tx) => [
        ...(await enqueueIn(context, tx, [message(1, { id: "x" })])),
        ...(await enqueueIn(context, tx, [message(2, { id: "x" }), message(3, { id: "y" })])),
      ]);
      const later = await enqueue(context, message(4, { id: "y" }), message(5), message(6, { id: "z" }));
      const one = await enqueue(context, message(7, { id: "z" }));
      const duplicates = [...same, ...later, ...one].map(({ duplicate }) => duplicate);
      assert.deepEqual(duplicates, [false, true, false, true, false, false, true]);
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), [1, 3, 5, 6]);
    },
  },
  {
    role,
    name: "frees a chosen id when its transaction rolls back",
    async run(context) {
      const failing = context.transaction(async (tx) => {
        await enqueueIn(context, tx, [message(1, { id: "x" })]);
        throw new Error("no");
      });
      await assert.rejects(failing, /no/);
      assert.deepEqual(await enqueue(context, message(2, { id: "x" })), [{ id: "x", duplicate: false }]);
    },
  },
  {
    role,
    name: "decides about a chosen id by how the transaction before it ended",
    needs: ["concurrency"],
    async run(context) {
      for (const how of ["commit", "rollback"] as const) {
        const first = await begin(context);
        await enqueueIn(context, first.tx, [message(`first ${how}`, { id: how })]);
        let answered = false;
        const second = enqueue(context, message(`second ${how}`, { id: how })).finally(() => (answered = true));
        await new Promise((resolve) => setTimeout(resolve, 50));
        assert.equal(answered, false, "the second waits for the first");
        await first[how]();
        assert.equal((await second)[0]?.duplicate, how === "commit");
      }
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), ["first commit", "second rollback"]);
    },
  },
  {
    role,
    name: "serialises the writers of a locked key, and only those",
    needs: ["concurrency"],
    async run(context) {
      const outbox = createOutbox({ store: context.store });
      const first = await begin(context);
      await outbox.lockKey(first.tx, { stream: "s", key: "k" });
      const journal: string[] = [];
      const waiting = context.transaction(async (tx) => {
        await outbox.lockKey(tx, { stream: "s", key: "k" });
        journal.push("second");
        await enqueueIn(context, tx, [message(2)]);
      });
      await context.transaction((tx) => outbox.lockKey(tx, { stream: "s", key: "another" }));
      await context.transaction((tx) => outbox.lockKey(tx, { stream: "another", key: "k" }));
      await enqueueIn(context, first.tx, [message(1)]);
      journal.push("first");
      await first.commit();
      await waiting;
      assert.deepEqual(journal, ["first", "second"]);
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), [1, 2]);
    },
  },
  {
    role,
    name: "takes thousands of messages in one call",
    async run(context) {
      const odd = '"{},\\\n NULL ü 🎉';
      await enqueue(context, ...range(1, 3000).map((n) => message({ n, odd }, { key: `k${n % 5}` })));
      const [relay] = [await joined(context.store, { batch: { messages: 1000, bytes: 10_000_000 } })];
      const got = await relay.drain();
      assert.equal(got.length, 3000);
      assert.deepEqual(payloads(got.slice(-1)), [{ n: 3000, odd }]);
    },
  },
];
