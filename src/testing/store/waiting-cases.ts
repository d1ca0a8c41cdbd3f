import assert from "node:assert/strict";
import { dead, joined, nextClaim, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase } from "./store-context.ts";

const BAD_INPUT = { code: "invalid_option" };
const HOUR_MS = 3_600_000;

/** What waits behind a key, and what going back would send again. */
export const waitingCases: readonly StoreCase[] = [
  {
    role: "waiting",
    name: "shows the message in front of a key and what waits behind it, oldest first",
    needs: ["promptProgress"],
    async run(context) {
      const { admin } = context.store;
      const consumer = await joined(context.store);
      consumer.judge = ({ type }, n) => (type === "bad" ? retry(n + 1, HOUR_MS, "no") : PUBLISHED);
      await enqueue(context, message(0), message(1, { type: "bad" }), ...numbered(2, 6), message(7, { key: "free" }));
      await consumer.drain();
      // Not read yet.
      await enqueue(context, ...numbered(8, 9), message(10, { key: "free" }), message(11, { stream: "other" }));
      const query = { relay: "r", stream: "s", key: "k" };
      const found = await admin.waiting(query);
      assert.deepEqual(payloads(found), [1, 2, 3, 4, 5, 6, 8, 9]);
      assert.deepEqual(
        found.map(({ status, attempts }) => [status, attempts]),
        [["retrying", 1], ...range(1, 7).map(() => ["pending", 0])],
      );
      assert.deepEqual(
        found[0]?.errors.map(({ error }) => error),
        ["no"],
      );
      const paged: unknown[] = [];
      for (let after: bigint | undefined; ;) {
        const page = await admin.waiting({ ...query, limit: 3, ...(after === undefined ? {} : { after }) });
        paged.push(...payloads(page));
        if (page.length < 3) break;
        after = page.at(-1)?.position ?? undefined;
      }
      assert.deepEqual(paged, [1, 2, 3, 4, 5, 6, 8, 9]);
      assert.deepEqual(payloads(await admin.waiting({ ...query, key: "free" })), [10]);
      assert.deepEqual(payloads(await admin.waiting({ ...query, stream: "other" })), [11]);
      assert.deepEqual(await admin.waiting({ ...query, key: "none" }), []);
    },
  },
  {
    role: "waiting",
    name: "shows what a dead letter holds up, and what a relay has in hand",
    needs: ["promptProgress"],
    async run(context) {
      const { admin } = context.store;
      const consumer = await joined(
        context.store,
        {},
        { judge: ({ type }) => (type === "bad" ? dead(1, true) : PUBLISHED) },
      );
      await enqueue(context, message(1, { type: "bad" }), ...numbered(2, 3));
      await consumer.drain();
      assert.deepEqual(payloads(await admin.waiting({ relay: "r", stream: "s", key: "k" })), [2, 3]);
      await enqueue(context, ...numbered(4, 5, { key: "other" }));
      const claim = await nextClaim(consumer.session);
      const inHand = await admin.waiting({ relay: "r", stream: "s", key: "other" });
      // What came by a stream of the database is in hand, and looks as if it were pending.
      assert.ok(inHand.every(({ status }) => status === "processing" || status === "pending"));
      assert.deepEqual(payloads(inHand), [4, 5]);
      assert.ok(claim !== undefined);
      await consumer.session.settle(
        claim,
        claim.messages.map(() => PUBLISHED),
      );
      assert.deepEqual(await admin.waiting({ relay: "r", stream: "s", key: "other" }), []);
    },
  },
  {
    role: "waiting",
    name: "knows only relays that there are, and refuses what is missing or absurd",
    async run(context) {
      const { admin } = context.store;
      await joined(context.store);
      const query = { relay: "r", stream: "s", key: "k" };
      await assert.rejects(async () => admin.waiting({ ...query, relay: "none" }), { code: "not_found" });
      const absurd = [
        undefined,
        {},
        { relay: "r", stream: "s" },
        { ...query, key: null },
        { ...query, after: 5 },
        { ...query, after: -1n },
        { ...query, limit: 1001 },
        { ...query, limit: 0 },
        { ...query, keys: "k" },
      ] as never[];
      for (const wrong of absurd) await assert.rejects(async () => admin.waiting(wrong), BAD_INPUT);
    },
  },
  {
    role: "rewind preview",
    name: "counts what going back would send again",
    needs: ["log", "promptProgress"],
    async run(context) {
      const { admin } = context.store;
      const consumer = await joined(context.store, { streams: ["s"] });
      consumer.judge = ({ type }, n) => (type === "bad" ? retry(n + 1, HOUR_MS) : PUBLISHED);
      const sent = await enqueue(context, ...numbered(1, 10), message(11, { stream: "other" }));
      await enqueue(context, message(12, { key: "bad", type: "bad" }));
      await consumer.drain();
      await enqueue(context, ...numbered(13, 15));
      const [third] = await admin.find({ id: sent[2]?.id ?? "", relay: "r" });
      assert.ok(third?.position != null);
      const earliest = await admin.rewindPreview("r", "earliest");
      assert.deepEqual([earliest.messages, earliest.estimated], [10, false]);
      assert.ok(earliest.from !== null && Math.abs(earliest.from.getTime() - Date.now()) < 120_000);
      assert.deepEqual(await admin.rewindPreview("r", "now"), { messages: 0, estimated: false, from: null });
      const from = await admin.rewindPreview("r", { position: third.position });
      assert.deepEqual([from.messages, from.from], [8, third.createdAt]);
      assert.equal((await admin.rewindPreview("r", { time: new Date(Date.now() + HOUR_MS) })).messages, 0);
      assert.equal((await admin.rewindPreview("r", { time: new Date(Date.now() - HOUR_MS) })).messages, 10);
      await assert.rejects(async () => admin.rewindPreview("none", "earliest"), { code: "not_found" });
      for (const wrong of [undefined, "erliest", { position: 5 }, {}] as never[])
        await assert.rejects(async () => admin.rewindPreview("r", wrong), BAD_INPUT);
      // It was a look and nothing else.
      assert.deepEqual((await admin.find({ id: sent[2]?.id ?? "", relay: "r" }))[0]?.status, "published");
      const before = consumer.published.length;
      await admin.rewind("r", { position: third.position });
      await consumer.take(8 + 3);
      assert.equal(consumer.published.length - before, 11);
    },
  },
];
