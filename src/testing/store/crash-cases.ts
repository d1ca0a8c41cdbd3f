import assert from "node:assert/strict";
import type { Claim, QueueSession } from "../../core/contracts.ts";
import { claimSome, dead, join, joined, PUBLISHED, retry, WAITING } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "crashes";
const SHORT_LEASE_MS = 250;
/** After so many deaths with one message in hand it is given up. */
const GIVE_UP = 2;

interface Lives {
  readonly deaths: number;
  readonly published: unknown[];
}

/** Processes that die whenever they hold `poison`, until it is found; then the rest is delivered. */
async function livesWith(context: StoreContext, poison: unknown, total: number): Promise<Lives> {
  const published: unknown[] = [];
  for (let deaths = 0; deaths <= 8; deaths++) {
    const session = await join(context.another(), { leaseMs: SHORT_LEASE_MS });
    for (;;) {
      const claim = await claimSome(session);
      const held = payloads(claim.messages);
      if (held.includes(poison) && claim.crashes < GIVE_UP) break;
      const admitted = session.admit(claim);
      const outcomes = held.map((payload, i) => {
        if (payload === poison) return dead(claim.crashes);
        return admitted === "all" || admitted[i] === true ? PUBLISHED : WAITING;
      });
      await session.settle(claim, outcomes);
      published.push(...held.filter((_, i) => outcomes[i]?.status === "published"));
      if (published.length === total - 1) return { deaths, published };
    }
  }
  throw new Error(`the poison was never found; published: ${published.join(", ")}`);
}

async function onlyDead(context: StoreContext): Promise<unknown[]> {
  return payloads(await context.store.admin.dead({}));
}

/** A message that kills its process again and again is found, and only that one. */
export const crashCases: readonly StoreCase[] = [
  {
    role,
    name: "hands out one by one what killed its owners, and tells how often",
    async run(context) {
      await enqueue(context, ...numbered(1, 5));
      const seen: Claim[] = [];
      for (let life = 1; life <= 5; life++) {
        const session = await join(context.another(), { leaseMs: SHORT_LEASE_MS });
        seen.push(await claimSome(session));
      }
      assert.equal(seen[0]?.messages.length, 5);
      assert.equal(seen[0]?.crashes, 0);
      const last = await joined(context.another());
      const claim = await claimSome(last.session);
      assert.deepEqual(payloads(claim.messages), [1]);
      assert.ok(claim.crashes >= 2, `${claim.crashes} crashes are known`);
      assert.ok([...seen, claim].every(({ crashes, messages }) => crashes === 0 || messages.length === 1));
      await last.session.settle(claim, [dead(claim.crashes)]);
      assert.deepEqual(payloads(await last.take(4)), range(2, 5));
      await enqueue(context, ...numbered(6, 9));
      const next = await claimSome(last.session);
      assert.equal(next.messages.length, 4);
      assert.equal(next.crashes, 0);
    },
  },
  {
    role,
    name: "finds the one message that kills, and blames no other",
    async run(context) {
      await enqueue(context, ...range(1, 6).map((n) => message(n, { key: `k${n}` })));
      const { deaths, published } = await livesWith(context, 3, 6);
      assert.ok(deaths >= GIVE_UP && deaths <= 6, `${deaths} processes died`);
      assert.deepEqual(published, [1, 2, 4, 5, 6]);
      assert.deepEqual(await onlyDead(context), [3]);
    },
  },
  {
    role,
    name: "finds it also among messages that are being retried",
    async run(context) {
      await enqueue(context, ...numbered(1, 3), message("other", { key: "other" }));
      const first = await join(context.store, { leaseMs: SHORT_LEASE_MS });
      const claim = await claimSome(first);
      await first.settle(claim, [retry(1, 0), WAITING, WAITING, PUBLISHED]);
      const { published } = await livesWith(context, 1, 3);
      assert.deepEqual(published, [2, 3]);
      assert.deepEqual(await onlyDead(context), [1]);
    },
  },
  {
    role,
    name: "keeps the deaths of a parked message while others are tried alone",
    async run(context) {
      await enqueue(context, message("poison", { key: "poison" }));
      const first = await join(context.store, { leaseMs: SHORT_LEASE_MS });
      await first.settle(await claimSome(first), [retry(1, 0)]);
      for (let deaths = 0; deaths <= 8; deaths++) {
        await enqueue(context, message(deaths, { key: `k${deaths}` }));
        const session = await join(context.another(), { leaseMs: SHORT_LEASE_MS });
        const healthy = await claimSome(session, ["new"]);
        assert.deepEqual(payloads(healthy.messages), [deaths]);
        await session.settle(healthy, [PUBLISHED]);
        const parked = await claimSome(session, ["retry"]);
        assert.deepEqual(payloads(parked.messages), ["poison"]);
        if (parked.crashes < GIVE_UP) continue;
        await session.settle(parked, [dead(parked.crashes)]);
        assert.deepEqual(await onlyDead(context), ["poison"]);
        return;
      }
      throw new Error("the poison was never found");
    },
  },
  {
    role,
    name: "takes the deaths of several messages along when lanes are divided and come together again",
    needs: ["sharing"],
    async run(context) {
      await enqueue(context, message("a", { key: "a" }), message("b", { key: "b" }));
      const first = await join(context.store, { leaseMs: SHORT_LEASE_MS });
      await first.settle(await claimSome(first), [retry(1, 0), retry(1, 0)]);
      const counts = new Map<unknown, number>();
      for (let life = 1; life <= 12; life++) {
        const session = await join(context.another(), { leaseMs: 500 });
        const other = life % 3 === 0 ? await join(context.another(), { leaseMs: 500 }) : undefined;
        const claim = await claimSome(session, ["retry"]);
        // It must not have held what the first one died with.
        await other?.leave();
        const [payload] = payloads(claim.messages);
        if (!claim.alone) continue;
        assert.ok(
          claim.crashes >= (counts.get(payload) ?? 0),
          `${claim.crashes} deaths of ${String(payload)} are known`,
        );
        counts.set(payload, claim.crashes);
        if (claim.crashes >= GIVE_UP) await session.settle(claim, [dead(claim.crashes)]);
        if ((await onlyDead(context)).length === 2) return;
      }
      assert.fail(`not both were found: ${JSON.stringify([...counts])}`);
    },
  },
  {
    role,
    name: "blames no message for a death while it was put down, and counts again when it is picked up",
    async run(context) {
      await enqueue(context, ...numbered(1, 4));
      const seen: [alone: boolean, crashes: number][] = [];
      const live = async (then: (session: QueueSession, claim: Claim) => Promise<void>): Promise<void> => {
        const session = await join(context.another(), { leaseMs: SHORT_LEASE_MS });
        const claim = await claimSome(session);
        seen.push([claim.alone, claim.crashes]);
        await then(session, claim);
      };
      const die = (): Promise<void> => Promise.resolve();
      await live(die);
      await live(die);
      await live((session, claim) => session.pauseAttempt(claim));
      await live((session, claim) => session.pauseAttempt(claim));
      await live(async (session, claim) => {
        await session.pauseAttempt(claim);
        await session.resumeAttempt(claim);
      });
      const last = await joined(context.another());
      const claim = await claimSome(last.session);
      assert.deepEqual(payloads(claim.messages), [1]);
      assert.deepEqual([claim.alone, claim.crashes], [true, 1]);
      assert.deepEqual(seen[0], [false, 0]);
      assert.deepEqual(seen.slice(2), [
        [true, 0],
        [true, 0],
        [true, 0],
      ]);
      await last.session.settle(claim, [PUBLISHED]);
      assert.deepEqual(payloads(await last.take(3)), [2, 3, 4]);
    },
  },
  {
    role,
    name: "does not count an owner that left in good order",
    async run(context) {
      await enqueue(context, ...numbered(1, 3));
      for (let i = 0; i < 4; i++) {
        const session = await join(context.another());
        const claim = await claimSome(session);
        assert.deepEqual([claim.messages.length, claim.crashes], [3, 0]);
        await session.leave();
      }
    },
  },
];
