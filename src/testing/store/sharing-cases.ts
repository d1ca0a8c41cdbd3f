import assert from "node:assert/strict";
import { LANES } from "../../core/lane.ts";
import { eventuallyTrue } from "../eventually.ts";
import type { Consumer } from "./consumer.ts";
import { joined, nextClaim, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message, payloads, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "sharing";
const needs = ["sharing"] as const;

const keys = range(1, 32).map((n) => `key-${n}`);

/** Lanes by owner. Their sum must be right at every look. */
async function lanesOf(context: StoreContext): Promise<Map<string | null, number>> {
  const [relay] = await context.store.admin.relays();
  const lanes = new Map<string | null, number>();
  for (const { owner, lanes: count } of relay?.lanes ?? []) lanes.set(owner, (lanes.get(owner) ?? 0) + count);
  assert.equal(
    [...lanes.values()].reduce((sum, count) => sum + count, 0),
    LANES,
    "every lane has one place",
  );
  return lanes;
}

/** All processes tend and work until the lanes are shared out evenly among them. */
async function untilShared(context: StoreContext, consumers: readonly Consumer[]): Promise<void> {
  await eventuallyTrue(
    async () => {
      const counts: number[] = [];
      for (const consumer of consumers) {
        await consumer.session.tend();
        await consumer.drain();
        counts.push((await consumer.session.tend()).lanes);
        await lanesOf(context);
      }
      const share = LANES / consumers.length;
      const even = counts.every((count) => Math.abs(count - share) <= Math.max(1, consumers.length - 1));
      assert.ok(even, `lanes are shared as ${counts.join(", ")}`);
      assert.equal(
        counts.reduce((sum, count) => sum + count, 0),
        LANES,
      );
    },
    { timeoutMs: 30_000, intervalMs: 20 },
  );
}

/** One journal for all: the order in which messages left. */
function journaling(journal: [key: string, n: number][]): { judge: Consumer["judge"] } {
  return {
    judge: (one) => {
      journal.push([String(one.key), Number(payloads([one])[0])]);
      return PUBLISHED;
    },
  };
}

function assertInOrder(journal: readonly [key: string, n: number][], upTo: number): void {
  for (const key of keys) {
    const mine = journal.filter(([of]) => of === key).map(([, n]) => n);
    assert.deepEqual(mine, range(1, upTo), `order of ${key}`);
  }
}

const round = (n: number) => keys.map((key) => message(n, { key }));

async function untilAllDone(context: StoreContext, consumers: readonly Consumer[]): Promise<void> {
  await eventuallyTrue(async () => {
    for (const consumer of consumers) {
      await consumer.session.tend();
      await consumer.drain();
    }
    assert.equal((await context.store.admin.relays())[0]?.pending, 0);
  });
}

/** Several processes of one relay: they share the lanes and rebalance as they come and go. */
export const sharingCases: readonly StoreCase[] = [
  {
    role,
    name: "splits the lanes when others join and merges them when they leave",
    needs,
    async run(context) {
      const first = await joined(context.store);
      await untilShared(context, [first]);
      const second = await joined(context.another());
      await untilShared(context, [first, second]);
      const third = await joined(context.another());
      await untilShared(context, [first, second, third]);
      await third.session.leave();
      await lanesOf(context);
      await untilShared(context, [first, second]);
      await first.session.leave();
      await untilShared(context, [second]);
      // The cursor that was split is one again: a process reads with one query.
      await enqueue(context, ...round(1));
      await second.take(keys.length);
      await enqueue(context, ...round(2));
      await second.take(keys.length);
      await eventuallyTrue(async () => {
        await second.session.tend();
        await second.drain();
        assert.equal((await context.store.admin.relays())[0]?.lanes.length, 1);
      });
    },
  },
  {
    role,
    name: "delivers once and in order while processes come and go",
    needs,
    async run(context) {
      const journal: [string, number][] = [];
      const a = await joined(context.store, { batch: { messages: 10, bytes: 1_000_000 } }, journaling(journal));
      await enqueue(context, ...round(1));
      await a.step();
      const b = await joined(context.another(), { batch: { messages: 7, bytes: 1_000_000 } }, journaling(journal));
      await enqueue(context, ...round(2));
      await untilShared(context, [a, b]);
      await enqueue(context, ...round(3));
      await a.step();
      const c = await joined(context.another(), {}, journaling(journal));
      await enqueue(context, ...round(4));
      await untilShared(context, [a, b, c]);
      await enqueue(context, ...round(5));
      await b.step();
      await b.session.leave();
      await untilShared(context, [a, c]);
      await enqueue(context, ...round(6));
      await a.session.leave();
      await enqueue(context, ...round(7));
      await untilShared(context, [c]);
      await untilAllDone(context, [c]);
      assertInOrder(journal, 7);
      assert.equal((await context.store.admin.relays())[0]?.published, BigInt(7 * keys.length));
    },
  },
  {
    role,
    name: "leaves a claim in hand alone when lanes are to be shared",
    needs,
    async run(context) {
      await enqueue(context, ...round(1));
      const first = await joined(context.store);
      const claim = await nextClaim(first.session);
      assert.equal(claim?.messages.length, keys.length);
      const second = await joined(context.another());
      for (let i = 0; i < 3; i++) {
        await first.session.tend();
        await second.session.tend();
        assert.equal(await nextClaim(first.session), undefined);
        assert.equal(await nextClaim(second.session), undefined);
      }
      await first.session.settle(
        claim,
        claim.messages.map(() => PUBLISHED),
      );
      await untilShared(context, [first, second]);
      assert.deepEqual([...first.published, ...second.published], []);
    },
  },
  {
    role,
    name: "moves failed keys with their lanes, in order and with their attempts",
    needs,
    async run(context) {
      const journal: [string, number][] = [];
      const attempts = new Set<number>();
      let broken = true;
      const judge: Consumer["judge"] = (one, before) => {
        const n = Number(payloads([one])[0]);
        if (broken && n === 1) return retry(before + 1, 50);
        if (n === 1) attempts.add(before);
        journal.push([String(one.key), n]);
        return PUBLISHED;
      };
      const first = await joined(context.store, {}, { judge });
      await enqueue(context, ...round(1));
      await enqueue(context, ...round(2));
      await first.drain();
      const second = await joined(context.another(), {}, { judge });
      await untilShared(context, [first, second]);
      assert.equal(journal.length, 0);
      await enqueue(context, ...round(3));
      await second.drain();
      broken = false;
      await untilAllDone(context, [first, second]);
      assertInOrder(journal, 3);
      assert.ok(!attempts.has(0), "attempts were forgotten");
      assert.ok(first.published.length > 0 && second.published.length > 0);
    },
  },
  {
    role,
    name: "shares out the lanes of a process that died",
    needs,
    async run(context) {
      const journal: [string, number][] = [];
      // Long enough for all to have their turns on a slow machine.
      const dying = await joined(context.store, { leaseMs: 1500 });
      const second = await joined(context.another(), {}, journaling(journal));
      const third = await joined(context.another(), {}, journaling(journal));
      await untilShared(context, [dying, second, third]);
      await enqueue(context, ...round(1));
      await nextClaim(dying.session);
      await untilShared(context, [second, third]);
      await untilAllDone(context, [second, third]);
      assertInOrder(journal, 1);
    },
  },
  {
    role,
    name: "creates a relay once when several processes start it together",
    needs: ["sharing", "concurrency"],
    async run(context) {
      await enqueue(context, ...round(1));
      const consumers = await Promise.all(
        range(1, 5).map((n) => joined(n === 1 ? context.store : context.another(), { relay: "together" })),
      );
      await untilShared(context, consumers);
      await untilAllDone(context, consumers);
      const all = consumers.flatMap(({ published }) => published.map(({ id }) => id));
      assert.equal(all.length, keys.length);
      assert.equal(new Set(all).size, keys.length);
    },
  },
];
