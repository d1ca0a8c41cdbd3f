import assert from "node:assert/strict";
import type { Consumer, Judge } from "./consumer.ts";
import { dead, joined, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range, sorted } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "dead letters";

/** Messages of type "bad" are dead at once. */
const killing =
  (block: boolean): Judge =>
  ({ type }) =>
    type === "bad" ? dead(1, block, "poison") : PUBLISHED;

async function withDead(context: StoreContext, block: boolean, ...bad: number[]): Promise<Consumer> {
  const consumer = await joined(context.store, {}, { judge: killing(block) });
  await enqueue(context, ...range(1, 6).map((n) => message(n, { type: bad.includes(n) ? "bad" : "good" })));
  await consumer.drain();
  return consumer;
}

export const deadLetterCases: readonly StoreCase[] = [
  {
    role,
    name: "lets a key go on after a dead letter",
    async run(context) {
      const consumer = await withDead(context, false, 2);
      await consumer.take(5 - consumer.published.length);
      assert.deepEqual(payloads(consumer.published), [1, 3, 4, 5, 6]);
      const state = await consumer.session.tend();
      assert.deepEqual([state.parked, state.blockedKeys], [0, 0]);
    },
  },
  {
    role,
    name: "holds a key behind a dead letter that blocks, while others flow",
    async run(context) {
      const consumer = await withDead(context, true, 2);
      await enqueue(context, message(7), message("other", { key: "other" }));
      await consumer.session.tend();
      await consumer.drain();
      assert.deepEqual(payloads(consumer.published), [1, "other"]);
      const state = await consumer.session.tend();
      assert.deepEqual([state.parked, state.blockedKeys], [5, 1]);
    },
  },
  {
    role,
    name: "keeps message, attempts and every error",
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = (_, attempts) =>
        attempts < 2 ? retry(attempts + 1, 0, `error ${attempts + 1}`) : dead(attempts + 1, false, "error 3");
      const [enqueued] = await enqueue(context, message({ n: 1 }, { headers: { correlationId: "c", own: "ü" } }));
      await enqueue(context, message("blob", { payload: new Uint8Array([0, 255]), key: "b" }));
      for (let i = 0; i < 20 && (await context.store.admin.dead({})).length < 2; i++) {
        await consumer.session.tend();
        await consumer.drain();
      }
      const letters = await context.store.admin.dead({});
      assert.equal(letters.length, 2);
      const [letter, blob] = letters;
      assert.ok(letter !== undefined && blob !== undefined);
      assert.deepEqual([letter.id, letter.relay, letter.state, letter.command], [enqueued?.id, "r", "dead", null]);
      assert.deepEqual([letter.stream, letter.type, letter.key], ["s", "t", "k"]);
      assert.deepEqual(payloads([letter]), [{ n: 1 }]);
      assert.deepEqual({ ...letter.headers }, { correlationId: "c", own: "ü" });
      assert.equal(letter.attempts, 3);
      assert.equal(letter.lastError, "error 3");
      assert.deepEqual(
        letter.errors.map(({ error }) => error),
        ["error 1", "error 2", "error 3"],
      );
      assert.ok(letter.errors.every(({ at }) => Math.abs(Date.parse(at) - Date.now()) < 120_000));
      assert.ok(Math.abs(letter.diedAt.getTime() - Date.now()) < 120_000);
      assert.deepEqual([...Buffer.from(blob.body)], [0, 255]);
    },
  },
  {
    role,
    name: "delivers a requeued letter",
    async run(context) {
      const consumer = await withDead(context, false, 2);
      await consumer.take(5 - consumer.published.length);
      const [letter] = await context.store.admin.dead({ relay: "r" });
      assert.ok(letter !== undefined);
      assert.equal(await context.store.admin.requeue({ relay: "r", position: letter.position }), 1);
      consumer.judge = () => PUBLISHED;
      assert.deepEqual(payloads(await consumer.take(1)), [2]);
      assert.deepEqual(await context.store.admin.dead({}), []);
      const [requeued] = await context.store.admin.dead({ state: "requeued" });
      assert.equal(requeued?.id, letter.id);
      assert.equal(requeued?.command, null);
      await enqueue(context, message(7));
      assert.deepEqual(payloads(await consumer.drain()), [7]);
    },
  },
  {
    role,
    name: "delivers a blocking letter that is requeued before what waits behind it",
    async run(context) {
      const consumer = await withDead(context, true, 2);
      const [letter] = await context.store.admin.dead({});
      assert.equal(await context.store.admin.requeue({ id: letter?.id ?? "" }), 1);
      consumer.judge = () => PUBLISHED;
      await enqueue(context, message(7));
      await consumer.take(6);
      assert.deepEqual(payloads(consumer.published), range(1, 7));
    },
  },
  {
    role,
    name: "requeues by filter",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: killing(false) });
      await enqueue(
        context,
        message(1, { type: "bad", stream: "one", key: "a" }),
        message(2, { type: "bad", stream: "two", key: "a" }),
        message(3, { type: "bad", stream: "one", key: "b" }),
      );
      await consumer.drain();
      const { admin } = context.store;
      assert.equal(await admin.requeue({ stream: "three" }), 0);
      assert.equal(await admin.requeue({ relay: "no such relay" }), 0);
      assert.equal(await admin.requeue({ stream: "one", type: "bad" }), 2);
      consumer.judge = () => PUBLISHED;
      assert.deepEqual(sorted(payloads(await consumer.take(2))), [1, 3]);
      assert.deepEqual(payloads(await admin.dead({})), [2]);
      assert.equal(await admin.requeue({ key: "a", limit: 5 }), 1);
      assert.deepEqual(payloads(await consumer.take(1)), [2]);
    },
  },
  {
    role,
    name: "requeues the letters of a key in order, before its later messages",
    async run(context) {
      const consumer = await withDead(context, false, 1, 3, 5);
      await consumer.take(3 - consumer.published.length);
      assert.deepEqual(payloads(consumer.published), [2, 4, 6]);
      assert.equal(await context.store.admin.requeue({ key: "k" }), 3);
      await consumer.session.tend();
      await enqueue(context, message(7));
      consumer.judge = () => PUBLISHED;
      const again = payloads(await consumer.take(4));
      assert.deepEqual(
        again.filter((n) => n !== 7),
        [1, 3, 5],
      );
    },
  },
  {
    role,
    name: "keeps the order of requeued letters when the first fails again",
    async run(context) {
      const consumer = await withDead(context, false, 1, 2, 3);
      await consumer.take(3 - consumer.published.length);
      await context.store.admin.requeue({ key: "k" });
      consumer.judge = (one, attempts) => (payloads([one])[0] === 1 && attempts < 2 ? retry(attempts + 1) : PUBLISHED);
      assert.deepEqual(payloads(await consumer.take(3)), [1, 2, 3]);
    },
  },
  {
    role,
    name: "makes a requeued letter dead again, with the errors of both lives",
    async run(context) {
      const consumer = await withDead(context, false, 1);
      const { admin } = context.store;
      await admin.requeue({ key: "k" });
      await consumer.session.tend();
      await consumer.drain();
      const [letter] = await admin.dead({});
      assert.equal(letter?.state, "dead");
      assert.equal(letter?.errors.length, 2);
      assert.equal(letter?.attempts, 2);
      assert.equal(await admin.requeue({ key: "k" }), 1);
      consumer.judge = () => PUBLISHED;
      assert.deepEqual(payloads(await consumer.take(1)), [1]);
    },
  },
  {
    role,
    name: "frees a key whose blocking letter is discarded, in order",
    async run(context) {
      const consumer = await withDead(context, true, 2);
      const { admin } = context.store;
      assert.equal(await admin.discard({ key: "k" }), 1);
      assert.deepEqual(payloads(await consumer.take(4)), range(3, 6));
      assert.deepEqual(await admin.dead({}), []);
      assert.equal((await admin.dead({ state: "discarded" })).length, 1);
      assert.equal(await admin.requeue({ key: "k" }), 0);
      await enqueue(context, message(7));
      assert.deepEqual(payloads(await consumer.drain()), [7]);
    },
  },
  {
    role,
    name: "frees a key whose blocking letter is discarded though nothing waits behind it",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: killing(true) });
      await enqueue(context, message(1, { type: "bad" }));
      await consumer.drain();
      await context.store.admin.discard({ all: true });
      await consumer.session.tend();
      await consumer.drain();
      assert.equal((await consumer.session.tend()).blockedKeys, 0);
      await enqueue(context, message(2));
      assert.deepEqual(payloads(await consumer.drain()), [2]);
    },
  },
  {
    role,
    name: "carries out a command that was given while no process ran the relay",
    async run(context) {
      const consumer = await withDead(context, true, 2);
      await consumer.session.leave();
      await context.store.admin.requeue({ all: true });
      const [waiting] = await context.store.admin.dead({});
      assert.equal(waiting?.command, "requeue");
      const next = await joined(context.another());
      assert.deepEqual(payloads(await next.take(5)), range(2, 6));
    },
  },
  {
    role,
    name: "has carried out such a command when it is first asked for messages",
    async run(context) {
      const consumer = await withDead(context, true, 2);
      await consumer.session.leave();
      await context.store.admin.requeue({ all: true });
      const next = await joined(context.another());
      assert.deepEqual(payloads(await next.drain()), range(2, 6));
    },
  },
  {
    role,
    name: "requeues dead letters without a key",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: killing(true) });
      await enqueue(context, ...range(1, 3).map((n) => ({ stream: "s", type: "bad", payload: n })));
      await consumer.drain();
      assert.equal(await context.store.admin.requeue({ stream: "s" }), 3);
      consumer.judge = () => PUBLISHED;
      assert.deepEqual(sorted(payloads(await consumer.take(3))), [1, 2, 3]);
      assert.equal((await consumer.session.tend()).blockedKeys, 0);
    },
  },
  {
    role,
    name: "keeps the letters of two relays apart",
    needs: ["log"],
    async run(context) {
      const bad = { judge: killing(false) };
      const [one, two] = [
        await joined(context.store, { relay: "one" }, bad),
        await joined(context.store, { relay: "two" }, bad),
      ];
      await enqueue(context, ...numbered(1, 2, { type: "bad" }));
      for (const consumer of [one, two]) {
        for (let i = 0; i < 4; i++) await consumer.drain();
      }
      assert.equal((await context.store.admin.dead({})).length, 4);
      assert.equal(await context.store.admin.requeue({ relay: "one" }), 2);
      one.judge = two.judge = () => PUBLISHED;
      assert.deepEqual(payloads(await one.take(2)), [1, 2]);
      await two.session.tend();
      assert.deepEqual(await two.drain(), []);
    },
  },
];
