import assert from "node:assert/strict";
import type { Claim, Outcome, QueueSession } from "../../core/contracts.ts";
import { eventuallyTrue } from "../eventually.ts";
import { dead, join, joined, nextClaim, postponed, PUBLISHED, retry, WAITING } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range, sorted } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "budgets";
const RUNNING: Outcome = { status: "running" };

/** A claim of this kind, which must be there by now or soon. */
async function some(session: QueueSession, kind: Claim["kind"]): Promise<Claim> {
  return eventuallyTrue(async () => {
    const claim = await session.claim(kind);
    assert.ok(claim !== undefined && claim.messages.length > 0, `there is a claim of kind ${kind}`);
    return claim;
  });
}

/** Nothing waits any more. */
async function assertClean(context: StoreContext): Promise<void> {
  const [figures] = await context.store.admin.relays();
  assert.deepEqual([figures?.parked, figures?.blockedKeys, figures?.pending, figures?.dead], [0, 0, 0, 0]);
}

/** New messages and those of failed keys, beside each other; attempts that take long; routes that are out. */
export const budgetCases: readonly StoreCase[] = [
  {
    role,
    name: "holds back what follows a dead letter until that is written",
    async run(context) {
      await enqueue(context, message(1, { key: "a" }), message(2, { key: "a" }), message(3, { key: "b" }));
      const session = await join(context.store, { batch: { messages: 1, bytes: 1_000_000 } });
      const first = await some(session, "new");
      const second = await some(session, "new");
      assert.deepEqual([payloads(first.messages), payloads(second.messages)], [[1], [2]]);
      // Should it not be written, the first one comes again: the second must not be ahead of it by then.
      const settled = session.settle(first, [dead()]);
      assert.deepEqual(session.admit(second), [false]);
      await settled;
      assert.ok(session.admit(second) === "all" || session.admit(second)[0] === true);
      await session.settle(second, [PUBLISHED]);
      await session.settle(await some(session, "new"), [PUBLISHED]);
    },
  },
  {
    role,
    name: "leaves a message that failed by itself its delay, though it had waited for a route before",
    async run(context) {
      await enqueue(context, message(1), message(2, { key: "other" }));
      const session = await join(context.store);
      await session.settle(await some(session, "new"), [postponed(1, "route"), postponed(1, "route")]);
      const failed = await some(session, "retry");
      await session.settle(failed, [retry(1, 3_600_000), postponed(1, "route")]);
      const again = await some(session, "retry");
      assert.deepEqual(payloads(again.messages), [2]);
      await session.settle(again, [PUBLISHED]);
      assert.equal(await session.claim("retry"), undefined);
      const nextAt = session.nextRetryAt();
      assert.ok(nextAt !== undefined && nextAt > performance.now() + 3_000_000, "it is not due for long");
    },
  },
  {
    role,
    name: "hands out new messages while failed ones are in hand, and settles either first",
    async run(context) {
      await enqueue(context, message(1, { key: "bad" }), message(2, { key: "good" }));
      const session = await join(context.store);
      const first = await some(session, "new");
      await session.settle(first, [retry(1), PUBLISHED]);
      const failed = await some(session, "retry");
      assert.deepEqual(payloads(failed.messages), [1]);
      await enqueue(context, message(3, { key: "good" }), message(4, { key: "bad" }));
      const fresh = await some(session, "new");
      assert.deepEqual(payloads(fresh.messages), [3, 4]);
      // What comes behind the failed one waits, though that is being tried at this moment.
      assert.deepEqual(session.admit(fresh), [true, false]);
      await session.settle(fresh, [PUBLISHED, WAITING]);
      await session.settle(failed, [PUBLISHED]);
      const behind = await some(session, "retry");
      assert.deepEqual(payloads(behind.messages), [4]);
      await session.settle(behind, [PUBLISHED]);
      await assertClean(context);
    },
  },
  {
    role,
    name: "keeps a key blocked when its failed message goes through between admission and settle of a new one",
    async run(context) {
      await enqueue(context, message(1));
      const session = await join(context.store);
      await session.settle(await some(session, "new"), [retry(1)]);
      const failed = await some(session, "retry");
      await enqueue(context, message(2));
      const second = await some(session, "new");
      assert.deepEqual(session.admit(second), [false]);
      await session.settle(failed, [PUBLISHED]);
      await session.settle(second, [WAITING]);
      await enqueue(context, message(3));
      const third = await some(session, "new");
      assert.deepEqual(session.admit(third), [false]);
      await session.settle(third, [WAITING]);
      const rest = await some(session, "retry");
      assert.deepEqual(payloads(rest.messages), [2, 3]);
      await session.settle(rest, [PUBLISHED, PUBLISHED]);
      await assertClean(context);
    },
  },
  {
    role,
    name: "settles claims of failed keys in any order",
    async run(context) {
      const keys = ["a", "b", "c"];
      await enqueue(context, ...keys.map((key) => message(key, { key })));
      const session = await join(context.store);
      const claims: Claim[] = [];
      const first = await some(session, "new");
      await session.settle(first, [retry(1), retry(1), retry(1)]);
      const all = await some(session, "retry");
      for (const i of range(0, 2)) claims.push(session.detach(all, i));
      await session.settle(all, [RUNNING, RUNNING, RUNNING]);
      await session.settle(claims[2]!, [PUBLISHED]);
      await session.settle(claims[0]!, [retry(2)]);
      await session.settle(claims[1]!, [PUBLISHED]);
      const again = await some(session, "retry");
      assert.deepEqual([payloads(again.messages), again.attempts], [["a"], [2]]);
      await session.settle(again, [PUBLISHED]);
      await assertClean(context);
    },
  },
  {
    role,
    name: "goes on without a message whose attempt takes long: only its key waits",
    async run(context) {
      await enqueue(context, message(1, { key: "slow" }), message(2, { key: "slow" }), message(3, { key: "quick" }));
      const session = await join(context.store);
      const page = await some(session, "new");
      const slow = session.detach(page, 0);
      assert.deepEqual([slow.kind, payloads(slow.messages), slow.attempts], ["retry", [1], [0]]);
      await session.settle(page, [RUNNING, WAITING, PUBLISHED]);
      await enqueue(context, message(4, { key: "slow" }), message(5, { key: "quick" }));
      const next = await some(session, "new");
      assert.deepEqual(session.admit(next), [false, true]);
      await session.settle(next, [WAITING, PUBLISHED]);
      await session.tend();
      assert.equal(await session.claim("retry"), undefined, "the key is being tried");
      await session.settle(slow, [PUBLISHED]);
      const behind = await some(session, "retry");
      assert.deepEqual(payloads(behind.messages), [2, 4]);
      await session.settle(behind, [PUBLISHED, PUBLISHED]);
      await assertClean(context);
      const [figures] = await context.store.admin.relays();
      assert.equal(figures?.published, 5n);
    },
  },
  {
    role,
    name: "takes the end of such an attempt before its page is written",
    async run(context) {
      await enqueue(context, message(1, { key: "a" }), message(2, { key: "b" }), message(3, { key: "c" }));
      const session = await join(context.store);
      const page = await some(session, "new");
      const [a, b] = [session.detach(page, 0), session.detach(page, 1)];
      const written = [session.settle(page, [RUNNING, RUNNING, PUBLISHED])];
      written.push(session.settle(a, [PUBLISHED]), session.settle(b, [retry(1)]));
      await Promise.all(written);
      const again = await some(session, "retry");
      assert.deepEqual([payloads(again.messages), again.attempts], [[2], [1]]);
      await session.settle(again, [dead(2, true)]);
      const [letter] = await context.store.admin.dead({});
      assert.equal(letter?.attempts, 2);
      await session.leave();
      const [figures] = await context.store.admin.relays();
      assert.deepEqual([figures?.parked, figures?.published], [0, 2n]);
    },
  },
  {
    role,
    name: "counts such an attempt as any other when it fails",
    async run(context) {
      await enqueue(context, ...numbered(1, 2));
      const session = await join(context.store);
      const page = await some(session, "new");
      const slow = session.detach(page, 0);
      await session.settle(page, [RUNNING, WAITING]);
      await session.settle(slow, [retry(1)]);
      const again = await some(session, "retry");
      assert.deepEqual(
        [payloads(again.messages), again.attempts],
        [
          [1, 2],
          [1, 0],
        ],
      );
      await session.settle(again, [PUBLISHED, PUBLISHED]);
      await assertClean(context);
    },
  },
  {
    role,
    name: "gives what was being tried for long to the next owner, in order",
    async run(context) {
      await enqueue(context, ...numbered(1, 3), message("x", { key: "x" }));
      const session = await join(context.store);
      const page = await some(session, "new");
      session.detach(page, 0);
      await session.settle(page, [RUNNING, WAITING, WAITING, PUBLISHED]);
      await session.leave();
      const next = await joined(context.another());
      assert.deepEqual(payloads(await next.take(3)), [1, 2, 3]);
      await next.session.leave();
    },
  },
  {
    role,
    name: "gives what is being tried for long away with its lane, in order",
    needs: ["sharing"],
    async run(context) {
      const keys = range(1, 32).map((n) => `key-${n}`);
      await enqueue(context, ...[1, 2].flatMap((n) => keys.map((key) => message(n, { key }))));
      const first = await joined(context.store);
      const page = await some(first.session, "new");
      const firsts = page.messages.map((one) => payloads([one])[0] === 1);
      const slow = firsts.flatMap((isFirst, i) => (isFirst ? [first.session.detach(page, i)] : []));
      await first.session.settle(
        page,
        firsts.map((isFirst) => (isFirst ? RUNNING : WAITING)),
      );
      const second = await joined(context.another());
      // The lanes change hands though no attempt ends.
      await eventuallyTrue(async () => {
        for (const { session } of [first, second]) {
          await session.tend();
          const claim = await nextClaim(session);
          if (claim !== undefined) session.abandon(claim);
        }
        assert.ok((await second.session.tend()).lanes > 0, "lanes are shared");
      });
      await second.drain();
      // Attempts of lanes that stayed may still be under way; another process has all others by now.
      for (const own of slow) {
        const isWritten = await first.session.settle(own, [PUBLISHED]).then(
          () => true,
          () => false,
        );
        if (isWritten) first.published.push(...own.messages);
      }
      await eventuallyTrue(async () => {
        for (const one of [second, first]) {
          await one.session.tend();
          await one.drain();
        }
        assert.equal(first.published.length + second.published.length, 64);
      });
      for (const key of keys) {
        const published = [...first.published, ...second.published].filter((one) => one.key === key);
        assert.deepEqual(payloads(published), [1, 2], `order of ${key}`);
      }
      await assertClean(context);
    },
  },
  {
    role,
    name: "counts no attempt for a message whose target is out",
    async run(context) {
      await enqueue(context, ...numbered(1, 2));
      const session = await join(context.store);
      await session.settle(await some(session, "new"), [postponed(0, "queue"), WAITING]);
      const again = await some(session, "retry");
      assert.deepEqual([payloads(again.messages), again.routes?.[0]], [[1, 2], "queue"]);
      assert.equal(again.attempts?.[0] ?? 0, 0);
      await session.settle(again, [retry(1), WAITING]);
      const failed = await some(session, "retry");
      assert.deepEqual(failed.attempts?.[0], 1);
      await session.settle(failed, [postponed(0, "queue"), WAITING]);
      const last = await some(session, "retry");
      assert.deepEqual(last.attempts?.[0], 1, "what was counted before stays counted");
      const [info] = await context.store.admin.find({ key: "k", limit: 1 });
      assert.equal(info?.lastError, "the target is out");
      await session.settle(last, [PUBLISHED, PUBLISHED]);
      await assertClean(context);
    },
  },
  {
    role,
    name: "tries few messages of a route that is out, and all of them once one goes through",
    async run(context) {
      const keys = range(1, 40).map((n) => `k${n}`);
      await enqueue(context, ...keys.map((key) => message(key, { key })), message("other", { key: "other" }));
      const session = await join(context.store);
      const page = await some(session, "new");
      const outcomes = page.messages.map(({ key }) => (key === "other" ? retry(1) : postponed(0, "queue")));
      await session.settle(page, outcomes);
      const probed: Claim[] = [];
      for (let round = 1; round <= 3; round++) {
        const probe = await some(session, "retry");
        probed.push(probe);
        const many = probe.messages.filter(({ key }) => key !== "other").length;
        assert.ok(many > 0 && many < 10, `${many} messages find out whether the route is back`);
        const results = probe.messages.map(({ key }) => (key === "other" ? PUBLISHED : postponed(0, "queue")));
        await session.settle(probe, round < 3 ? results : probe.messages.map(() => PUBLISHED));
      }
      const got = payloads(probed[2]!.messages);
      while (got.length < 40) {
        const claim = await some(session, "retry");
        got.push(...payloads(claim.messages));
        await session.settle(
          claim,
          claim.messages.map(() => PUBLISHED),
        );
      }
      assert.deepEqual(sorted(got), sorted(keys));
      await assertClean(context);
    },
  },
  {
    role,
    name: "claims new messages beside any number of failed keys",
    async run(context) {
      const failing = range(1, 300).map((n) => message(n, { key: `bad-${n}` }));
      await enqueue(context, ...failing, message("good", { key: "good" }));
      const session = await join(context.store);
      let seen = 0;
      while (seen < 301) {
        const claim = await some(session, "new");
        seen += claim.messages.length;
        await session.settle(
          claim,
          claim.messages.map(({ key }) => (key === "good" ? PUBLISHED : retry(1))),
        );
      }
      await enqueue(context, message("next", { key: "good" }));
      const next = await session.claim("new");
      assert.deepEqual(payloads(next?.messages ?? []), ["next"]);
      await session.settle(next!, [PUBLISHED]);
      let tried = 0;
      for (let claim = await some(session, "retry"); ; claim = await some(session, "retry")) {
        tried += claim.messages.length;
        await session.settle(
          claim,
          claim.messages.map(() => PUBLISHED),
        );
        if (tried === 300) break;
      }
      assert.equal(await nextClaim(session), undefined);
      await assertClean(context);
    },
  },
];
