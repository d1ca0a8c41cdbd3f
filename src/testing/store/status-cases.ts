import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInfo } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import { createRelay } from "../../relay/relay.ts";
import { createMemoryPublisher } from "../memory-publisher.ts";
import { dead, joined, nextClaim, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message, numbered, payloads } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "status";

async function only(context: StoreContext, id: string): Promise<MessageInfo> {
  const found = await context.store.admin.find({ id });
  assert.equal(found.length, 1);
  const [info] = found;
  assert.ok(info !== undefined);
  return info;
}

async function refused(call: () => Promise<unknown>, of: string): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.equal(errorCode(error), "invalid_option");
    assert.ok(error instanceof Error && error.message.startsWith(of), String(error));
    return true;
  });
}

/** What people see of a message. */
export const statusCases: readonly StoreCase[] = [
  {
    role,
    name: "follows a message from pending through processing to published",
    needs: ["promptProgress"],
    async run(context) {
      const [sent] = await enqueue(context, message({ a: 1 }));
      const id = sent?.id ?? "";
      const before = await only(context, id);
      assert.deepEqual([before.status, before.attempts, before.publishedAt, before.relay], ["pending", 0, null, null]);
      const consumer = await joined(context.store);
      assert.equal((await only(context, id)).status, "pending");
      const claim = await nextClaim(consumer.session);
      assert.ok(claim !== undefined);
      assert.equal((await only(context, id)).status, "processing");
      await consumer.session.settle(claim, [PUBLISHED]);
      const after = await only(context, id);
      assert.deepEqual([after.status, after.attempts, after.lastError, after.relay], ["published", 1, null, "r"]);
      assert.ok(after.publishedAt !== null && after.publishedAt.getTime() >= after.createdAt.getTime());
      assert.ok(Math.abs(after.publishedAt.getTime() - Date.now()) < 120_000);
      assert.deepEqual(payloads([after]), [{ a: 1 }]);
    },
  },
  {
    role,
    name: "shows a scheduled message with its time",
    async run(context) {
      const deliverAt = new Date(Date.now() + 3_600_000);
      const [sent] = await enqueue(context, message(1, { deliverAt }));
      const info = await only(context, sent?.id ?? "");
      assert.deepEqual([info.status, info.position, info.deliverAt], ["scheduled", null, deliverAt]);
    },
  },
  {
    role,
    name: "shows attempts and the last error while a message is retried, and what waits as pending",
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = (_, n) => retry(n + 1, n === 0 ? 0 : 60_000, `error ${n + 1}`);
      const sent = await enqueue(context, ...numbered(1, 2));
      await consumer.drain();
      await consumer.session.tend();
      await consumer.drain();
      const [first, second] = [await only(context, sent[0]?.id ?? ""), await only(context, sent[1]?.id ?? "")];
      assert.deepEqual([first.status, first.attempts, first.lastError], ["retrying", 2, "error 2"]);
      assert.deepEqual([second.status, second.attempts, second.lastError], ["pending", 0, null]);
      assert.deepEqual([first.publishedAt, second.publishedAt], [null, null]);
    },
  },
  {
    role,
    name: "shows true attempts, the last error and the true time after retries",
    needs: ["promptProgress"],
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = (one, n) => (one.type === "bad" && n < 2 ? retry(n + 1, 60, `error ${n + 1}`) : PUBLISHED);
      const sent = await enqueue(context, message(1, { type: "bad" }), message(2), message(3, { key: "other" }));
      await sleep(30);
      await consumer.take(3);
      const [first, behind, other] = await Promise.all(sent.map(({ id }) => only(context, id)));
      assert.ok(first !== undefined && behind !== undefined && other !== undefined);
      assert.deepEqual([first.status, first.attempts, first.lastError], ["published", 3, "error 2"]);
      assert.deepEqual([behind.status, behind.attempts, behind.lastError], ["published", 1, null]);
      assert.deepEqual([other.status, other.attempts], ["published", 1]);
      assert.ok(first.publishedAt !== null && other.publishedAt !== null);
      assert.ok(
        first.publishedAt.getTime() - other.publishedAt.getTime() >= 100,
        "the time of the last attempt counts",
      );
    },
  },
  {
    role,
    name: "shows dead letters, and all attempts once they were requeued and went through",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: () => dead(2, false, "poison") });
      const [sent] = await enqueue(context, message(1));
      const id = sent?.id ?? "";
      await consumer.drain();
      const died = await only(context, id);
      assert.deepEqual([died.status, died.attempts, died.lastError, died.publishedAt], ["dead", 2, "poison", null]);
      await context.store.admin.requeue({ id });
      await consumer.session.tend();
      consumer.judge = () => PUBLISHED;
      await consumer.take(1);
      const risen = await only(context, id);
      assert.equal(risen.status, "published");
      assert.ok(risen.publishedAt !== null);
      assert.equal(risen.attempts, 3, "attempts of both lives count");
    },
  },
  {
    role,
    name: "shows a message as often as there are relays for it, each with its own state",
    needs: ["log", "promptProgress"],
    async run(context) {
      const one = await joined(context.store, { relay: "one" });
      await joined(context.store, { relay: "two" });
      await joined(context.store, { relay: "other stream", streams: ["other"] });
      const [sent] = await enqueue(context, message(1));
      await one.drain();
      const found = await context.store.admin.find({ id: sent?.id ?? "" });
      assert.deepEqual(
        found.map(({ relay, status }) => [relay, status]),
        [
          ["one", "published"],
          ["two", "pending"],
        ],
      );
      const [filtered] = await context.store.admin.find({ relay: "two" });
      assert.equal(filtered?.status, "pending");
    },
  },
  {
    role,
    name: "finds by id, key, aggregate, correlation and stream, in order and up to a limit",
    async run(context) {
      const { admin } = context.store;
      const sent = await enqueue(
        context,
        message(1, { key: "a", stream: "x" }),
        { stream: "x", type: "t", payload: 2, aggregateType: "order", aggregateId: "7" },
        { stream: "y", type: "t", payload: 3, aggregateType: "invoice", aggregateId: "7" },
        message(4, { key: "b", headers: { correlationId: "chain" } }),
        message(5, { key: "b", headers: { correlationId: "chain" }, deliverAt: new Date(Date.now() + 3_600_000) }),
      );
      await joined(context.store);
      const find = async (query: Parameters<typeof admin.find>[0]): Promise<unknown[]> =>
        payloads(await admin.find(query));
      assert.deepEqual(await find({ id: sent[1]?.id ?? "" }), [2]);
      assert.deepEqual(await find({ key: "a" }), [1]);
      assert.deepEqual(await find({ aggregateId: "7" }), [2, 3]);
      assert.deepEqual(await find({ aggregateType: "order", aggregateId: "7" }), [2]);
      assert.deepEqual(await find({ correlationId: "chain" }), [4, 5]);
      // A message without a correlation of its own is the first of its chain.
      assert.deepEqual(await find({ correlationId: sent[0]?.id ?? "" }), [1]);
      assert.deepEqual(await find({ stream: "x" }), [1, 2]);
      assert.deepEqual(await find({ stream: "x", limit: 1 }), [1]);
      assert.deepEqual(await find({ key: "missing" }), []);
    },
  },
  {
    role,
    name: "shows messages as pending again after a rewind",
    needs: ["log"],
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = (one, n) => (one.type === "bad" && n === 0 ? retry(1) : PUBLISHED);
      const sent = await enqueue(context, message(1, { type: "bad", key: "a" }), message(2, { key: "b" }));
      await consumer.take(2);
      await context.store.admin.rewind("r", "earliest");
      const infos = await Promise.all(sent.map(({ id }) => only(context, id)));
      assert.deepEqual(
        infos.map(({ status }) => status),
        ["pending", "pending"],
      );
    },
  },
  {
    role,
    name: "holds any error a relay meets, cut to a length",
    async run(context) {
      const publisher = createMemoryPublisher();
      const [sent] = await enqueue(context, message(1));
      publisher.fail(() => new Error(`\u0000 \uD800 ${"long ".repeat(2000)}`));
      const relay = createRelay({ store: context.store, name: "r", publisher, maintenance: false });
      await relay.drainOnce();
      const info = await only(context, sent?.id ?? "");
      assert.equal(info.status, "retrying");
      assert.ok(info.lastError !== null && info.lastError.includes("long"));
      assert.ok(info.lastError.length <= 2000, `it has ${info.lastError.length} characters`);
    },
  },
  {
    role,
    name: "refuses a query that is missing, misspelt or of the wrong type, and a rewind without a target",
    async run({ store: { admin } }) {
      const query = [undefined, null, "id", { idd: "x" }, { id: 5 }, { limit: 0 }, { limit: "1" }] as never[];
      const deadQuery = [...query, { position: 5 }] as never[];
      for (const wrong of query) await refused(() => admin.find(wrong), "admin.find");
      for (const wrong of deadQuery) {
        await refused(() => admin.dead(wrong), "admin.dead");
        await refused(() => admin.requeue(wrong), "admin.requeue");
        await refused(() => admin.discard(wrong), "admin.discard");
      }
      for (const wrong of [undefined, "erliest", { position: 5 }, { time: "now" }] as never[])
        await refused(() => admin.rewind("r", wrong), "admin.rewind");
    },
  },
];
