import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Message } from "../../core/message.ts";
import { within } from "../eventually.ts";
import { dead, join, joined, nextClaim, PUBLISHED, retry, WAITING } from "./consumer.ts";
import type { Judge } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase } from "./store-context.ts";

const role = "parking";

/** Fails the messages that match as often as told, then publishes them. */
function failing(times: number, matches: (message: Message) => boolean, delayMs = 0): Judge {
  return (one, attempts) => (matches(one) && attempts < times ? retry(attempts + 1, delayMs) : PUBLISHED);
}
const is = (n: unknown) => (one: Message) => payloads([one])[0] === n;

/** What fails waits with its key; everything else flows. */
export const parkingCases: readonly StoreCase[] = [
  {
    role,
    name: "blocks the key of a failed message while other keys flow",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: failing(99, is("a1"), 60_000) });
      await enqueue(context, message("a1", { key: "a" }), message("b1", { key: "b" }), message("a2", { key: "a" }));
      assert.deepEqual(payloads(await consumer.drain()), ["b1"]);
      await enqueue(context, message("a3", { key: "a" }), message("b2", { key: "b" }), message("c1", { key: "c" }));
      assert.deepEqual(payloads(await consumer.drain()), ["b2", "c1"]);
      const state = await consumer.session.tend();
      assert.equal(state.parked, 3);
      assert.equal(state.blockedKeys, 1);
    },
  },
  {
    role,
    name: "drains a key in order once its first message goes through, and frees it",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: failing(2, is(1)) });
      await enqueue(context, ...numbered(1, 5));
      assert.deepEqual(payloads(await consumer.take(5)), range(1, 5));
      const state = await consumer.session.tend();
      assert.deepEqual([state.parked, state.blockedKeys], [0, 0]);
      await enqueue(context, message(6));
      assert.deepEqual(payloads(await consumer.drain()), [6]);
    },
  },
  {
    role,
    name: "tells how often a message has failed, and starts anew with the next of its key",
    async run(context) {
      const seen: [unknown, number][] = [];
      const consumer = await joined(context.store);
      consumer.judge = (one, attempts) => {
        seen.push([payloads([one])[0], attempts]);
        return attempts < 2 && one.type === "bad" ? retry(attempts + 1) : PUBLISHED;
      };
      await enqueue(context, message(1, { type: "bad" }), message(2), message(3, { type: "bad" }), message(4));
      assert.deepEqual(payloads(await consumer.take(4)), [1, 2, 3, 4]);
      assert.deepEqual(
        seen.filter(([n]) => n === 1).map(([, attempts]) => attempts),
        [0, 1, 2],
      );
      assert.deepEqual(
        seen.filter(([n]) => n === 3).map(([, attempts]) => attempts),
        [0, 1, 2],
      );
      assert.deepEqual(
        seen.filter(([n]) => n === 2).map(([, attempts]) => attempts),
        [0],
      );
    },
  },
  {
    role,
    name: "does not hand out a failed message before its delay is over",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: failing(1, is(1), 300) });
      await enqueue(context, message(1));
      const failedAt = performance.now();
      assert.deepEqual(await consumer.drain(), []);
      const due = consumer.session.nextRetryAt();
      assert.ok(due !== undefined, "the next retry is known");
      await consumer.take(1);
      assert.ok(performance.now() - failedAt >= 290, "it came early");
    },
  },
  {
    role,
    name: "parks what comes later in the same batch behind a failure",
    async run(context) {
      await enqueue(context, ...numbered(1, 4), message("other", { key: "other" }));
      const session = await join(context.store);
      const claim = await nextClaim(session);
      assert.ok(claim !== undefined);
      await session.settle(claim, [PUBLISHED, retry(1), WAITING, WAITING, PUBLISHED]);
      const consumer = await joined(context.store);
      await session.leave();
      assert.deepEqual(payloads(await consumer.take(3)), [2, 3, 4]);
    },
  },
  {
    role,
    name: "puts what arrives while a key drains behind what is draining",
    async run(context) {
      await enqueue(context, ...numbered(1, 4));
      const consumer = await joined(
        context.store,
        { batch: { messages: 2, bytes: 1_000_000 } },
        { judge: failing(1, is(1)) },
      );
      await consumer.step();
      // The failed key is in hand; new messages of it are read meanwhile.
      const draining = await nextClaim(consumer.session);
      assert.deepEqual(payloads(draining?.messages ?? []), [1, 2]);
      await enqueue(context, ...numbered(5, 6));
      const ahead = await nextClaim(consumer.session);
      assert.ok(draining !== undefined);
      const settled = consumer.session.settle(draining, [PUBLISHED, PUBLISHED]);
      consumer.published.push(...draining.messages);
      if (ahead !== undefined) {
        const outcomes = consumer.outcomesOf(ahead);
        await consumer.session.settle(ahead, outcomes);
        consumer.published.push(...ahead.messages.filter((_, i) => outcomes[i]?.status === "published"));
      }
      await settled;
      await consumer.take(6 - consumer.published.length);
      assert.deepEqual(payloads(consumer.published), range(1, 6));
    },
  },
  {
    role,
    name: "does not deliver a drained message twice when new ones of its key were read ahead",
    async run(context) {
      await enqueue(context, message(1), message("x", { key: "x" }));
      const consumer = await joined(
        context.store,
        { batch: { messages: 1, bytes: 1_000_000 } },
        { judge: failing(1, is(1)) },
      );
      await consumer.step();
      await enqueue(context, ...numbered(2, 6));
      await consumer.take(7 - consumer.published.length);
      assert.deepEqual(payloads(consumer.published.filter((one) => one.key === "k")), range(1, 6));
      assert.deepEqual(await consumer.drain(), []);
    },
  },
  {
    role,
    name: "drains a long queue behind one key in several batches, in order",
    async run(context) {
      const consumer = await joined(
        context.store,
        { batch: { messages: 10, bytes: 1_000_000 } },
        { judge: failing(1, is(1)) },
      );
      await enqueue(context, ...numbered(1, 55), ...range(1, 5).map((n) => message(n * 1000, { key: "other" })));
      await consumer.take(60);
      assert.deepEqual(payloads(consumer.published.filter((one) => one.key === "k")), range(1, 55));
    },
  },
  {
    role,
    name: "drains several failed keys together, each in order",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: failing(2, ({ type }) => type === "first") });
      const keys = ["a", "b", "c", "d", "e"];
      for (const n of [1, 2, 3]) {
        await enqueue(context, ...keys.map((key) => message(n, { key, type: n === 1 ? "first" : "later" })));
      }
      await consumer.take(15);
      for (const key of keys) {
        assert.deepEqual(payloads(consumer.published.filter((one) => one.key === key)), [1, 2, 3], key);
      }
    },
  },
  {
    role,
    name: "drains failed keys and single messages whose bodies are larger than a batch",
    async run(context) {
      const large = "x".repeat(3000);
      const consumer = await joined(context.store, { batch: { messages: 100, bytes: 4000 } });
      consumer.judge = (_, attempts) => (attempts === 0 ? retry(1, 400) : PUBLISHED);
      const keyed = range(1, 6).map((n) => message(`${n} ${large}`, { key: `k${n}` }));
      const single = range(7, 9).map((n) => ({ stream: "s", type: "t", payload: `${n} ${large}` }));
      await enqueue(context, ...keyed, ...single);
      await consumer.drain();
      // All of them are due at once then.
      await sleep(450);
      await consumer.take(9 - consumer.published.length);
      const got = payloads(consumer.published).map((text) => Number.parseInt(String(text), 10));
      assert.deepEqual(
        got.toSorted((a, b) => a - b),
        range(1, 9),
      );
      const state = await consumer.session.tend();
      assert.deepEqual([state.parked, state.blockedKeys], [0, 0]);
    },
  },
  {
    role,
    name: "blocks a key in one stream only",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: failing(99, is(1), 60_000) });
      await enqueue(context, message(1, { stream: "s1" }), message(2, { stream: "s2" }), message(3, { stream: "s1" }));
      assert.deepEqual(payloads(await consumer.drain()), [2]);
    },
  },
  {
    role,
    name: "blocks nothing with a failed message that has no key",
    async run(context) {
      const plain = (n: number) => ({ stream: "s", type: "t", payload: n });
      const consumer = await joined(context.store, {}, { judge: failing(1, is(1)) });
      await enqueue(context, ...[1, 2, 3].map(plain));
      assert.deepEqual(payloads(await consumer.take(3)), [2, 3, 1]);
    },
  },
  {
    role,
    name: "blocks nothing with a failed message of an unordered stream",
    async run(context) {
      const consumer = await joined(context.store, { unordered: ["loose"] }, { judge: failing(1, is(1)) });
      await enqueue(context, ...numbered(1, 3, { stream: "loose" }));
      assert.deepEqual(payloads(await consumer.take(3)), [2, 3, 1]);
      const state = await consumer.session.tend();
      assert.deepEqual([state.parked, state.blockedKeys], [0, 0]);
    },
  },
  {
    role,
    name: "claims nothing new while too many are parked, and goes on afterwards",
    async run(context) {
      let broken = true;
      const consumer = await joined(context.store, { maxParked: 4, batch: { messages: 2, bytes: 1_000_000 } });
      consumer.judge = (one, attempts) => (broken && one.key === "k" ? retry(attempts + 1, 20) : PUBLISHED);
      await enqueue(context, ...numbered(1, 10), message("other", { key: "other" }));
      let state = await consumer.session.tend();
      for (let i = 0; i < 10 && !state.full; i++) {
        const claim = await consumer.session.claim("new");
        assert.ok(claim !== undefined);
        await consumer.session.settle(claim, consumer.outcomesOf(claim));
        state = await consumer.session.tend();
      }
      assert.equal(await consumer.session.claim("new"), undefined);
      assert.equal(state.full, true);
      assert.ok(state.parked >= 4 && state.parked < 8, `${state.parked} are parked`);
      assert.equal(consumer.published.length, 0);
      broken = false;
      await consumer.take(11);
      assert.deepEqual(payloads(consumer.published.filter((one) => one.key === "k")), range(1, 10));
      assert.equal((await consumer.session.tend()).full, false);
    },
  },
  {
    role,
    name: "keeps parked messages, delays and attempts for the next owner",
    async run(context) {
      const first = await joined(context.store, {}, { judge: failing(99, is(1), 400) });
      await enqueue(context, ...numbered(1, 3), message("other", { key: "other" }));
      await first.drain();
      const failedAt = performance.now();
      await first.session.leave();
      const attempts: number[] = [];
      const second = await joined(context.another());
      second.judge = (one, before) => {
        if (is(1)(one)) attempts.push(before);
        return PUBLISHED;
      };
      await enqueue(context, message(4));
      assert.deepEqual(payloads(await second.take(4)), range(1, 4));
      assert.deepEqual(attempts, [1]);
      assert.ok(performance.now() - failedAt >= 350, "the delay was forgotten");
    },
  },
  {
    role,
    name: "takes any text as an error",
    async run(context) {
      await enqueue(context, message(1, { key: "a" }), message(2, { key: "b" }));
      const session = await join(context.store);
      const claim = await nextClaim(session);
      assert.ok(claim !== undefined);
      const error = `\u0000 \uD800 "quoted" \\ ${"long ".repeat(10_000)}`;
      const settled = session.settle(claim, [retry(1, 0, error), dead(1, false, error)]);
      await within(5000, "settling with an odd error", settled);
      await session.leave();
      const consumer = await joined(context.store);
      assert.deepEqual(payloads(await consumer.take(1)), [1]);
      assert.equal((await context.store.admin.dead({})).length, 1);
    },
  },
  {
    role,
    name: "blocks and frees keys and streams of any characters",
    async run(context) {
      const odd = [
        "NULL",
        '"',
        "\\",
        "{a,b}",
        "'; drop table x; --",
        " ",
        "ü🎉",
        "a\nb",
        "\u001F",
        "null",
        "%s $1",
        "k".repeat(1024),
      ];
      const consumer = await joined(context.store, {}, { judge: failing(1, ({ type }) => type === "first") });
      for (const type of ["first", "second"]) {
        await enqueue(context, ...odd.map((key) => message(type, { key, stream: key.slice(0, 60), type })));
      }
      await consumer.take(odd.length * 2);
      for (const key of odd) {
        assert.deepEqual(payloads(consumer.published.filter((one) => one.key === key)), ["first", "second"], key);
      }
      const state = await consumer.session.tend();
      assert.deepEqual([state.parked, state.blockedKeys], [0, 0]);
    },
  },
];
