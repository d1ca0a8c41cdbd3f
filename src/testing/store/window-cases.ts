import assert from "node:assert/strict";
import { background } from "../eventually.ts";
import { joined } from "./consumer.ts";
import { begin, enqueue, enqueueIn, message, numbered, payloads, range, sorted } from "./enqueuing.ts";
import type { StoreCase } from "./store-context.ts";

const role = "queue";

/** Every committed message is handed out, in the order of its key, whenever its transaction committed. */
export const windowCases: readonly StoreCase[] = [
  {
    role,
    name: "hands out what was committed, in order, once",
    async run(context) {
      await enqueue(context, ...numbered(1, 5));
      await enqueue(context, ...numbered(6, 7));
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), range(1, 7));
      assert.deepEqual(await consumer.drain(), []);
      await enqueue(context, message(8));
      assert.deepEqual(payloads(await consumer.drain()), [8]);
    },
  },
  {
    role,
    name: "gives nothing of a transaction that rolled back",
    async run(context) {
      const consumer = await joined(context.store);
      await assert.rejects(
        context.transaction(async (tx) => {
          await enqueueIn(context, tx, numbered(1, 3));
          throw new Error("no");
        }),
        /no/,
      );
      await enqueue(context, message(4));
      assert.deepEqual(payloads(await consumer.drain()), [4]);
    },
  },
  {
    role,
    name: "carries every field, unchanged",
    async run(context) {
      const payload = { text: "Grüße, 世界 🎉 'a' \"b\" \\ \u0001", nested: { list: [1, null, true] } };
      const headers = { correlationId: "c-ü", traceparent: "00-1-2-01", schemaVersion: 3, own: { a: ["é"] } };
      const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
      const before = Date.now() - 60_000;
      const [first, second] = await enqueue(
        context,
        { stream: "orders", type: "made", payload, aggregateType: "order", aggregateId: "o-1", headers },
        { stream: "orders", type: "blob", payload: bytes },
      );
      const consumer = await joined(context.store);
      const [json, blob] = await consumer.drain();
      assert.ok(json !== undefined && blob !== undefined);
      assert.equal(json.id, first?.id);
      assert.deepEqual([json.stream, json.type, json.key], ["orders", "made", "o-1"]);
      assert.deepEqual([json.aggregateType, json.aggregateId], ["order", "o-1"]);
      assert.deepEqual(payloads([json]), [payload]);
      assert.deepEqual({ ...json.headers }, headers);
      assert.ok(json.createdAt.getTime() > before && json.createdAt.getTime() < Date.now() + 60_000);
      assert.equal(blob.id, second?.id);
      assert.deepEqual([blob.key, blob.aggregateType, blob.aggregateId], [null, null, null]);
      assert.ok(blob.body instanceof Uint8Array);
      assert.deepEqual(Buffer.from(blob.body), Buffer.from(bytes));
      assert.equal(blob.headers.contentType, "application/octet-stream");
      assert.ok(typeof json.position === "bigint" && blob.position > json.position);
    },
  },
  {
    role,
    name: "does not skip a late commit with an earlier position",
    needs: ["concurrency"],
    async run(context) {
      const late = await begin(context);
      await enqueueIn(context, late.tx, [message("late", { key: "a" })]);
      await enqueue(context, message("early", { key: "b" }));
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), ["early"]);
      await enqueue(context, message("next", { key: "b" }));
      assert.deepEqual(payloads(await consumer.drain()), ["next"]);
      await late.commit();
      assert.deepEqual(payloads(await consumer.drain()), ["late"]);
      assert.deepEqual(await consumer.drain(), []);
    },
  },
  {
    role,
    name: "does not skip a transaction that began early and enqueued late",
    needs: ["concurrency"],
    async run(context) {
      const early = await begin(context);
      await context.note(early.tx, "the transaction has its id now");
      await enqueue(context, message(1));
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.drain()), [1]);
      await enqueueIn(context, early.tx, [message(2, { key: "other" })]);
      await enqueue(context, message(3));
      assert.deepEqual(payloads(await consumer.drain()), [3]);
      await enqueueIn(context, early.tx, [message(4, { key: "other" })]);
      await early.commit();
      assert.deepEqual(payloads(await consumer.drain()), [2, 4]);
    },
  },
  {
    role,
    name: "is not held up by a transaction that stays open",
    needs: ["concurrency"],
    async run(context) {
      const open = await begin(context);
      await context.note(open.tx, "still here");
      await enqueueIn(context, open.tx, [message("open", { key: "o" })]);
      const consumer = await joined(context.store);
      for (let n = 1; n <= 5; n++) {
        await enqueue(context, message(n));
        assert.deepEqual(payloads(await consumer.drain()), [n]);
      }
      await open.rollback();
      await enqueue(context, message(6));
      assert.deepEqual(payloads(await consumer.drain()), [6]);
    },
  },
  {
    role,
    name: "hands out late commits of several transactions, each in its own order",
    needs: ["concurrency"],
    async run(context) {
      const [a, b, c] = [await begin(context), await begin(context), await begin(context)];
      for (let n = 1; n <= 3; n++) {
        for (const [key, { tx }] of Object.entries({ a, b, c })) {
          await enqueueIn(context, tx, [message(`${key}${n}`, { key })]);
        }
      }
      await enqueue(context, message("d1", { key: "d" }));
      const consumer = await joined(context.store, { batch: { messages: 2, bytes: 1_000_000 } });
      assert.deepEqual(payloads(await consumer.drain()), ["d1"]);
      await b.commit();
      assert.deepEqual(payloads(await consumer.drain()), ["b1", "b2", "b3"]);
      await enqueue(context, message("d2", { key: "d" }));
      await c.commit();
      await a.rollback();
      assert.deepEqual(sorted(payloads(await consumer.drain())), ["c1", "c2", "c3", "d2"]);
      const of = (key: string): unknown[] => payloads(consumer.published.filter((one) => one.key === key));
      assert.deepEqual(of("c"), ["c1", "c2", "c3"]);
      assert.deepEqual(of("d"), ["d1", "d2"]);
    },
  },
  {
    role,
    name: "does not lose a commit that lands while pages are being read",
    needs: ["concurrency"],
    async run(context) {
      const late = await begin(context);
      await enqueueIn(context, late.tx, [message("late", { key: "late" })]);
      await enqueue(context, ...numbered(1, 9));
      const consumer = await joined(context.store, { batch: { messages: 2, bytes: 1_000_000 } });
      await consumer.step();
      await consumer.step();
      await late.commit();
      await enqueue(context, message(10));
      const rest = payloads(await consumer.drain());
      assert.deepEqual(
        rest.filter((payload) => payload !== "late"),
        range(5, 10),
      );
      assert.equal(rest.filter((payload) => payload === "late").length, 1);
    },
  },
  {
    role,
    name: "pages through a large backlog without a gap or a repeat",
    async run(context) {
      const keys = 7;
      const batch = Array.from({ length: 1003 }, (_, n) => message(n, { key: `k${n % keys}` }));
      await enqueue(context, ...batch);
      const consumer = await joined(context.store, { batch: { messages: 50, bytes: 1_000_000 } });
      const got = await consumer.drain();
      assert.equal(got.length, batch.length);
      for (let key = 0; key < keys; key++) {
        const mine = payloads(got.filter((one) => one.key === `k${key}`));
        assert.deepEqual(
          mine,
          range(0, 1002).filter((n) => n % keys === key),
        );
      }
    },
  },
  {
    role,
    name: "delivers each message of concurrent writers once, in the order of its key",
    needs: ["concurrency"],
    async run(context) {
      const consumer = await joined(context.store, { batch: { messages: 20, bytes: 1_000_000 } });
      const keys = 4;
      const each = 25;
      const write = async (key: number): Promise<void> => {
        for (let n = 0; n < each; n++) {
          const open = await begin(context);
          await context.note(open.tx, `${key}/${n}`);
          await enqueueIn(context, open.tx, [message(n, { key: `k${key}` })]);
          await (n % 5 === 4 ? open.rollback() : open.commit());
        }
      };
      const writers = background(() => Promise.all(Array.from({ length: keys }, (_, key) => write(key))));
      while (writers.running) await consumer.drain();
      await writers.done;
      await consumer.drain();
      for (let key = 0; key < keys; key++) {
        const mine = payloads(consumer.published.filter((one) => one.key === `k${key}`));
        assert.deepEqual(
          mine,
          range(0, each - 1).filter((n) => n % 5 !== 4),
        );
      }
    },
  },
];
