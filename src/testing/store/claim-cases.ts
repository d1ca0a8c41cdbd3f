import assert from "node:assert/strict";
import { join, joined, nextClaim, PUBLISHED, retry, WAITING } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase } from "./store-context.ts";

const role = "queue";
const by = (messages: number, bytes = 1_000_000) => ({ batch: { messages, bytes } });

/** Batches, reading ahead, and settling. */
export const claimCases: readonly StoreCase[] = [
  {
    role,
    name: "claims no more than the batch allows",
    async run(context) {
      await enqueue(context, ...numbered(1, 10));
      const session = await join(context.store, by(4));
      const sizes: number[] = [];
      for (let claim = await nextClaim(session); claim !== undefined; claim = await nextClaim(session)) {
        if (claim.messages.length > 0) sizes.push(claim.messages.length);
        await session.settle(
          claim,
          claim.messages.map(() => PUBLISHED),
        );
      }
      assert.deepEqual(sizes, [4, 4, 2]);
    },
  },
  {
    role,
    name: "hands out one message at a time, though many were written in the same moment",
    needs: ["concurrency"],
    async run(context) {
      const all = range(1, 20);
      await Promise.all(all.map((n) => enqueue(context, { stream: "s", type: "t", payload: n })));
      const consumer = await joined(context.store, by(1));
      const published = await consumer.take(all.length);
      assert.deepEqual(
        payloads(published)
          .map(Number)
          .toSorted((a, b) => a - b),
        all,
      );
    },
  },
  {
    role,
    name: "keeps a batch within its bytes plus one message",
    async run(context) {
      const kilobyte = "x".repeat(1000);
      await enqueue(context, ...range(1, 10).map((n) => message(`${n}${kilobyte}`)));
      const consumer = await joined(context.store, by(100, 3500));
      const sizes: number[] = [];
      consumer.judge = () => PUBLISHED;
      for (
        let claim = await nextClaim(consumer.session);
        claim !== undefined;
        claim = await nextClaim(consumer.session)
      ) {
        sizes.push(claim.messages.reduce((sum, one) => sum + Buffer.byteLength(one.body), 0));
        await consumer.session.settle(
          claim,
          claim.messages.map(() => PUBLISHED),
        );
      }
      assert.equal(Math.round(sizes.reduce((sum, size) => sum + size, 0) / 1000), 10);
      assert.ok(Math.max(...sizes) <= 3500 + 1010, `batches of ${sizes.join(", ")} bytes`);
      assert.ok(Math.max(...sizes) >= 2000, `batches of ${sizes.join(", ")} bytes`);
    },
  },
  {
    role,
    name: "hands out a message that is larger than a whole batch",
    async run(context) {
      await enqueue(context, message(1), message("x".repeat(50_000)), message(3));
      const consumer = await joined(context.store, by(100, 1000));
      assert.deepEqual(
        (await consumer.drain()).map(({ body }) => body.length),
        [1, 50_002, 1],
      );
    },
  },
  {
    role,
    name: "claims ahead while earlier claims are unsettled, and settles them in order",
    async run(context) {
      await enqueue(context, ...numbered(1, 6));
      const session = await join(context.store, by(2));
      const first = await nextClaim(session);
      const second = await nextClaim(session);
      const third = await nextClaim(session);
      assert.ok(first !== undefined && second !== undefined && third !== undefined);
      assert.deepEqual(payloads([...first.messages, ...second.messages, ...third.messages]), range(1, 6));
      await Promise.all(
        [first, second, third].map((claim) =>
          session.settle(
            claim,
            claim.messages.map(() => PUBLISHED),
          ),
        ),
      );
      await session.leave();
      const next = await joined(context.store);
      assert.deepEqual(await next.drain(), []);
    },
  },
  {
    role,
    name: "gives a claim that was read ahead only once",
    async run(context) {
      await enqueue(context, ...numbered(1, 4));
      const session = await join(context.store, by(4));
      const first = await nextClaim(session);
      assert.equal(first?.messages.length, 4);
      await enqueue(context, message(5));
      const seen = [...first.messages];
      for (let i = 0; i < 3; i++) {
        const ahead = await nextClaim(session);
        if (ahead !== undefined) seen.push(...ahead.messages);
      }
      assert.deepEqual(payloads(seen.slice(0, 4)), range(1, 4));
      assert.ok(seen.length <= 5, "a message was handed out twice");
    },
  },
  {
    role,
    name: "settles many claims that were reported at once",
    async run(context) {
      await enqueue(context, ...numbered(1, 40));
      const session = await join(context.store, by(2));
      const settles: Promise<void>[] = [];
      for (
        let claim = await nextClaim(session);
        claim !== undefined && settles.length < 20;
        claim = await nextClaim(session)
      ) {
        settles.push(
          session.settle(
            claim,
            claim.messages.map(() => PUBLISHED),
          ),
        );
      }
      await Promise.all(settles);
      await session.leave();
      const [figures] = await context.store.admin.relays();
      assert.equal(figures?.published, 40n);
      assert.equal(figures?.pending, 0);
    },
  },
  {
    role,
    name: "settles a claim that is reported in the moment the one before it is settled",
    async run(context) {
      await enqueue(context, ...numbered(1, 6));
      const session = await join(context.store, by(2));
      const claims = [await nextClaim(session), await nextClaim(session), await nextClaim(session)];
      for (const claim of claims) {
        assert.ok(claim !== undefined);
        await session.settle(
          claim,
          claim.messages.map(() => PUBLISHED),
        );
      }
      const [figures] = await context.store.admin.relays();
      assert.equal(figures?.published, 6n);
    },
  },
  {
    role,
    name: "settles the leading messages of a claim and gives the rest to the next owner",
    async run(context) {
      await enqueue(context, ...numbered(1, 5));
      const session = await join(context.store);
      const claim = await nextClaim(session);
      assert.ok(claim !== undefined);
      await session.settle(claim, [PUBLISHED, PUBLISHED]);
      assert.equal(await nextClaim(session), undefined);
      await session.leave();
      const next = await joined(context.store);
      assert.deepEqual(payloads(await next.drain()), [3, 4, 5]);
    },
  },
  {
    role,
    name: "settles nothing of a claim without outcomes, and keeps what was settled before it",
    async run(context) {
      await enqueue(context, ...numbered(1, 6));
      const session = await join(context.store, by(2));
      const first = await nextClaim(session);
      const second = await nextClaim(session);
      assert.ok(first !== undefined && second !== undefined);
      const settled = session.settle(first, [PUBLISHED, PUBLISHED]);
      await Promise.all([settled, session.settle(second, [])]);
      await session.leave();
      const next = await joined(context.store);
      assert.deepEqual(payloads(await next.drain()), [3, 4, 5, 6]);
    },
  },
  {
    role,
    name: "keeps failures of the leading messages when a claim is settled in part",
    async run(context) {
      await enqueue(
        context,
        message(1, { key: "a" }),
        message(2, { key: "b" }),
        message(3, { key: "a" }),
        message(4, { key: "b" }),
      );
      const session = await join(context.store);
      const claim = await nextClaim(session);
      assert.ok(claim !== undefined);
      await session.settle(claim, [retry(1, 0), PUBLISHED, WAITING]);
      await session.leave();
      const next = await joined(context.store);
      const attempts: number[] = [];
      next.judge = (one, before) => {
        if (one.key === "a") attempts.push(before);
        return PUBLISHED;
      };
      const got = await next.take(3);
      assert.deepEqual(payloads(got.filter((one) => one.key === "a")), [1, 3]);
      assert.deepEqual(payloads(got.filter((one) => one.key === "b")), [4]);
      assert.deepEqual(attempts, [1, 0]);
    },
  },
  {
    role,
    name: "counts a failure for what was read ahead as soon as it is reported",
    async run(context) {
      await enqueue(
        context,
        message(1, { key: "a" }),
        message(2, { key: "b" }),
        message(3, { key: "a" }),
        message(4, { key: "b" }),
      );
      const session = await join(context.store, by(2));
      const first = await nextClaim(session);
      const second = await nextClaim(session);
      assert.ok(first !== undefined && second !== undefined);
      assert.deepEqual(payloads(second.messages), [3, 4]);
      const settled = session.settle(first, [retry(1, 60_000), PUBLISHED]);
      assert.deepEqual(session.admit(second), [false, true]);
      await Promise.all([settled, session.settle(second, [WAITING, PUBLISHED])]);
      const [figures] = await context.store.admin.relays();
      assert.equal(figures?.parked, 2);
      assert.equal(figures?.blockedKeys, 1);
    },
  },
  {
    role,
    name: "gives what was claimed and never settled to the next owner, in order",
    async run(context) {
      await enqueue(context, ...numbered(1, 6));
      const session = await join(context.store, by(2));
      const first = await nextClaim(session);
      assert.ok(first !== undefined);
      await session.settle(first, [PUBLISHED, PUBLISHED]);
      await nextClaim(session);
      await nextClaim(session);
      await session.leave();
      const next = await joined(context.store, by(2));
      assert.deepEqual(payloads(await next.drain()), range(3, 6));
    },
  },
  {
    role,
    name: "writes what was reported before it leaves",
    async run(context) {
      await enqueue(context, ...numbered(1, 3));
      const session = await join(context.store);
      const claim = await nextClaim(session);
      assert.ok(claim !== undefined);
      const settled = session.settle(claim, [PUBLISHED, PUBLISHED, retry(1, 0)]);
      await session.leave();
      await settled;
      const next = await joined(context.store);
      assert.deepEqual(payloads(await next.take(1)), [3]);
    },
  },
  {
    role,
    name: "hands out large bodies unchanged, also when they are tried again",
    async run(context) {
      const text = (n: number) => `${n}:${"ü🎉 ".repeat(n)}`;
      const sizes = [10, 1000, 20_000, 100_000];
      const bytes = Uint8Array.from({ length: 200_000 }, (_, i) => i % 251);
      await enqueue(context, ...sizes.map((n) => message(text(n))), message("", { payload: bytes, key: "bytes" }));
      const consumer = await joined(context.store, by(100, 100_000));
      consumer.judge = (_, attempts) => (attempts === 0 ? retry(1, 0) : PUBLISHED);
      await consumer.take(5);
      const kept = consumer.published.filter(({ key }) => key === "k");
      assert.deepEqual(payloads(kept), sizes.map(text));
      const blob = consumer.published.find(({ key }) => key === "bytes")?.body;
      assert.ok(blob instanceof Uint8Array && Buffer.compare(Buffer.from(blob), Buffer.from(bytes)) === 0);
    },
  },
  {
    role,
    name: "hands out again what was in hand when the claims were abandoned, and nothing that was settled",
    async run(context) {
      await enqueue(context, ...numbered(1, 8));
      const consumer = await joined(context.store, by(2));
      await consumer.step();
      const { session } = consumer;
      const second = await nextClaim(session);
      const third = await nextClaim(session);
      assert.ok(second !== undefined && third !== undefined);
      await session.settle(second, [retry(1, 0), WAITING]);
      session.abandon(third);
      await assert.rejects(session.settle(third, [PUBLISHED, PUBLISHED]), { code: "lease_lost" });
      await consumer.take(6);
      assert.deepEqual(payloads(consumer.published), range(1, 8));
    },
  },
  {
    role,
    name: "steps over no claim that is settled out of turn",
    async run(context) {
      await enqueue(context, ...numbered(1, 4));
      const consumer = await joined(context.store, by(2));
      const first = await nextClaim(consumer.session);
      const second = await nextClaim(consumer.session);
      assert.ok(first !== undefined && second !== undefined);
      const published = [PUBLISHED, PUBLISHED];
      await assert.rejects(consumer.session.settle(second, published), { code: "lease_lost" });
      await assert.rejects(consumer.session.settle(first, published), { code: "lease_lost" });
      assert.deepEqual(payloads(await consumer.take(4)), range(1, 4));
    },
  },
];
