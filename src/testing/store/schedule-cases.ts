import assert from "node:assert/strict";
import { createOutbox } from "../../outbox/outbox.ts";
import { eventuallyTrue } from "../eventually.ts";
import { joined } from "./consumer.ts";
import { enqueue, enqueueIn, message, numbered, payloads } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "schedule";
const inMs = (ms: number) => new Date(Date.now() + ms);
const HOUR_MS = 3_600_000;

const cancel = (context: StoreContext, id: string): Promise<boolean> =>
  context.transaction((tx) => createOutbox({ store: context.store }).cancel(tx, id));

/** `deliverAt`: not before its time, in order, and it can be taken back. */
export const scheduleCases: readonly StoreCase[] = [
  {
    role,
    name: "delivers a message when its time has come and not before",
    async run(context) {
      const consumer = await joined(context.store);
      const [later] = await enqueue(context, message("later", { deliverAt: inMs(1000) }), message("now"));
      const enqueuedAt = performance.now();
      await consumer.session.tend();
      assert.deepEqual(payloads(await consumer.drain()), ["now"]);
      const due = consumer.session.nextScheduledAt();
      assert.ok(due !== undefined && due > performance.now() - 1000, "the next due time is known");
      const [got] = await consumer.take(1);
      assert.equal(got?.id, later?.id);
      assert.ok(performance.now() - enqueuedAt > 900, "it came early");
    },
  },
  {
    role,
    name: "delivers at once what is due already",
    async run(context) {
      const consumer = await joined(context.store);
      await enqueue(context, message(1, { deliverAt: new Date(0) }), message(2, { deliverAt: inMs(-HOUR_MS) }));
      assert.deepEqual(payloads(await consumer.drain()), [1, 2]);
    },
  },
  {
    role,
    name: "delivers scheduled messages of a key in the order of their times, then of their enqueueing",
    async run(context) {
      const consumer = await joined(context.store);
      // All of them are enqueued before the first is due.
      const at = Date.now() + 2000;
      await enqueue(
        context,
        message("c", { deliverAt: new Date(at + 2) }),
        message("a", { deliverAt: new Date(at) }),
        message("b1", { deliverAt: new Date(at + 1) }),
      );
      await enqueue(context, message("b2", { deliverAt: new Date(at + 1) }), message("now"));
      assert.deepEqual(payloads(await consumer.take(5)), ["now", "a", "b1", "b2", "c"]);
    },
  },
  {
    role,
    name: "delivers many that fall due together",
    async run(context) {
      const consumer = await joined(context.store);
      await enqueue(context, ...numbered(1, 1200, { deliverAt: inMs(100) }));
      const got = await consumer.take(1200);
      assert.deepEqual(
        payloads(got),
        got.map((_, i) => i + 1),
      );
    },
  },
  {
    role,
    name: "has what came due while no process ran the relay when it is first asked for messages",
    async run(context) {
      const before = await joined(context.store);
      await before.session.leave();
      await enqueue(context, message("later", { deliverAt: inMs(200) }));
      await new Promise((resolve) => setTimeout(resolve, 300));
      const consumer = await joined(context.another());
      assert.deepEqual(payloads(await consumer.drain()), ["later"]);
    },
  },
  {
    role,
    name: "takes back a message that has not come due, once",
    async run(context) {
      const [one, two] = await enqueue(
        context,
        message(1, { deliverAt: inMs(HOUR_MS) }),
        message(2, { deliverAt: inMs(800) }),
        message(3),
      );
      assert.equal(await cancel(context, one?.id ?? ""), true);
      assert.equal(await cancel(context, one?.id ?? ""), false);
      assert.equal(await cancel(context, "unknown"), false);
      assert.equal(await cancel(context, two?.id ?? ""), true);
      const consumer = await joined(context.store);
      await new Promise((resolve) => setTimeout(resolve, 850));
      assert.deepEqual(payloads(await consumer.take(1)), [3]);
      await consumer.session.tend();
      assert.deepEqual(await consumer.drain(), []);
    },
  },
  {
    role,
    name: "keeps a message whose cancelling transaction rolled back",
    async run(context) {
      // It must not be due before the cancellation has been tried.
      const [one] = await enqueue(context, message(1, { deliverAt: inMs(2000) }));
      const failing = context.transaction(async (tx) => {
        assert.equal(await createOutbox({ store: context.store }).cancel(tx, one?.id ?? ""), true);
        throw new Error("no");
      });
      await assert.rejects(failing, /no/);
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.take(1)), [1]);
      assert.equal(await cancel(context, one?.id ?? ""), false);
    },
  },
  {
    role,
    name: "schedules a chosen id once, and frees it when it is cancelled",
    async run(context) {
      const scheduled = message(1, { id: "x", deliverAt: inMs(HOUR_MS) });
      assert.equal((await enqueue(context, scheduled))[0]?.duplicate, false);
      assert.equal((await enqueue(context, scheduled))[0]?.duplicate, true);
      assert.equal((await enqueue(context, message(2, { id: "x" })))[0]?.duplicate, true);
      assert.equal(await cancel(context, "x"), true);
      assert.equal((await enqueue(context, message(3, { id: "x" })))[0]?.duplicate, false);
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), [3]);
    },
  },
  {
    role,
    name: "promotes a due message once, whichever process of a relay looks",
    needs: ["concurrency", "sharing"],
    async run(context) {
      await enqueue(context, ...numbered(1, 40, { deliverAt: inMs(150) }).map((one, i) => ({ ...one, key: `k${i}` })));
      const consumers = await Promise.all(
        [context.store, context.another(), context.another()].map((on) => joined(on)),
      );
      const got = (): string[] => consumers.flatMap(({ published }) => published.map(({ id }) => id));
      await eventuallyTrue(async () => {
        for (const consumer of consumers) {
          await consumer.session.tend();
          await consumer.drain();
        }
        assert.equal(got().length, 40);
      });
      assert.equal(new Set(got()).size, 40);
    },
  },
  {
    role,
    name: "promotes a due message once, however many relays look, and needs only a relay for it",
    needs: ["concurrency", "log"],
    async run(context) {
      const relays = ["a", "b", "c"];
      await context.transaction((tx) => enqueueIn(context, tx, numbered(1, 20, { deliverAt: inMs(150) })));
      const consumers = await Promise.all(relays.map((relay) => joined(context.another(), { relay })));
      await Promise.all(consumers.map((consumer) => consumer.take(20)));
      for (const consumer of consumers) {
        await consumer.session.tend();
        assert.deepEqual(await consumer.drain(), []);
        assert.equal(new Set(consumer.published.map(({ id }) => id)).size, 20);
      }
    },
  },
];
