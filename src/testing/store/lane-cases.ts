import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { QueueSession } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import { LANES } from "../../core/lane.ts";
import { eventuallyTrue } from "../eventually.ts";
import { claimSome, dead, join, joined, nextClaim, PUBLISHED, retry, WAITING } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "lanes";
const SHORT_LEASE_MS = 250;

/** Messages in many lanes. */
const spread = (count: number) => range(1, count).map((n) => message(n, { key: `key-${n}` }));

/** Owners that die with everything in their hands. */
async function deaths(context: StoreContext, count: number): Promise<void> {
  for (let life = 1; life <= count; life++) await claimSome(await join(context.another(), { leaseMs: SHORT_LEASE_MS }));
}

async function lanesOf(session: QueueSession): Promise<number> {
  return (await session.tend()).lanes;
}

/** Tends until each of them has lanes, with nothing to claim. */
async function untilShared(sessions: readonly QueueSession[]): Promise<void> {
  await eventuallyTrue(
    async () => {
      for (const session of sessions) await claimNothing(session);
      const counts = await Promise.all(sessions.map(lanesOf));
      assert.ok(
        counts.every((count) => count > 0),
        `lanes: ${counts.join(", ")}`,
      );
    },
    { timeoutMs: 30_000, intervalMs: 20 },
  );
}

async function epochs(context: StoreContext): Promise<bigint[]> {
  const [relay] = await context.store.admin.relays();
  return (relay?.lanes ?? []).map(({ epoch }) => epoch);
}

const isLost = (error: unknown): boolean => errorCode(error) === "lease_lost";

/** What the engine under the stores decides: who owns lanes, what counts after they changed hands. */
export const laneCases: readonly StoreCase[] = [
  {
    role,
    name: "takes deaths along when lanes are divided among new owners",
    needs: ["sharing"],
    async run(context) {
      await enqueue(context, ...spread(64));
      await deaths(context, 1);
      const mortal = await join(context.another(), { leaseMs: 2000 });
      await claimSome(mortal);
      const heirs = [await join(context.another()), await join(context.another())];
      const claims = await Promise.all(heirs.map((session) => claimSome(session)));
      assert.deepEqual(
        claims.map(({ messages }) => messages.length),
        [1, 1],
        "an heir of dead owners takes one message at a time",
      );
    },
  },
  {
    role,
    name: "keeps lanes while it is careful, and shares them when it is not any more",
    needs: ["sharing"],
    async run(context) {
      await enqueue(context, ...spread(30));
      await deaths(context, 2);
      const heir = await joined(context.another());
      const claim = await claimSome(heir.session);
      assert.equal(claim.messages.length, 1);
      const lanes = await lanesOf(heir.session);
      const other = await join(context.another());
      for (let look = 1; look <= 3; look++) {
        assert.equal(await lanesOf(heir.session), lanes);
        assert.ok((await lanesOf(other)) <= LANES - lanes);
        assert.equal(await nextClaim(heir.session), undefined, "a careful owner has one claim in hand");
      }
      await heir.session.settle(claim, heir.outcomesOf(claim));
      await eventuallyTrue(
        async () => {
          await heir.session.tend();
          await heir.drain();
          await other.tend();
          await nextClaim(other);
          assert.ok((await lanesOf(other)) > LANES / 4);
        },
        { timeoutMs: 30_000, intervalMs: 20 },
      );
    },
  },
  {
    role,
    name: "is no member any more when it has left, though it tends late",
    needs: ["sharing"],
    async run(context) {
      await enqueue(context, ...numbered(1, 2));
      const leaving = await join(context.another());
      await Promise.allSettled([leaving.tend(), leaving.leave(), leaving.tend()]);
      await leaving.tend().catch(() => undefined);
      const next = await join(context.another());
      assert.equal(await lanesOf(next), LANES, "no lane is kept for a process that is gone");
    },
  },
  {
    role,
    name: "loads under a new epoch, so that nothing sent before takes effect afterwards",
    async run(context) {
      await enqueue(context, ...numbered(1, 4));
      const session = await join(context.store, { batch: { messages: 2, bytes: 1_000_000 } });
      const before = await epochs(context);
      const first = await claimSome(session);
      session.abandon(first);
      assert.equal(session.isCurrent(first), false);
      const again = await claimSome(session);
      assert.deepEqual(payloads(again.messages), payloads(first.messages));
      assert.ok(session.isCurrent(again));
      assert.ok((await epochs(context)).every((epoch, i) => epoch > (before[i] ?? 0n)));
      await assert.rejects(
        session.settle(
          first,
          first.messages.map(() => PUBLISHED),
        ),
        isLost,
      );
      await session.settle(
        again,
        again.messages.map(() => PUBLISHED),
      );
    },
  },
  {
    role,
    name: "goes on with what is in hand when a command is for another's lanes",
    needs: ["sharing"],
    async run(context) {
      const [one, two] = [await joined(context.another()), await joined(context.another())];
      await untilShared([one.session, two.session]);
      await enqueue(context, ...spread(64));
      const claim = await claimSome(two.session);
      one.judge = () => dead();
      await one.drain();
      assert.ok((await context.store.admin.requeue({ all: true })) > 0);
      await two.session.tend();
      await nextClaim(two.session);
      assert.ok(two.session.isCurrent(claim));
      await two.session.settle(claim, two.outcomesOf(claim));
    },
  },
  {
    role,
    name: "has nothing in hand any more when its relay is dropped",
    async run(context) {
      await enqueue(context, ...numbered(1, 2));
      const session = await join(context.store);
      const claim = await claimSome(session);
      await context.store.admin.drop("r");
      await assert.rejects(session.tend(), (error) => errorCode(error) === "relay_dropped");
      assert.equal(session.isCurrent(claim), false);
      assert.deepEqual(session.admit(claim), [false, false]);
      await assert.rejects(session.settle(claim, [PUBLISHED, PUBLISHED]));
    },
  },
  {
    role,
    name: "holds a key behind a dead letter, whatever is reported of the key afterwards",
    async run(context) {
      await enqueue(context, ...numbered(1, 3), message("other", { key: "other" }));
      const session = await join(context.store);
      const claim = await claimSome(session);
      const running = session.detach(claim, 0);
      await session.settle(claim, [{ status: "running" }, WAITING, WAITING, retry(1, 0)]);
      await session.settle(running, [dead(1, true)]);
      const next = await claimSome(session);
      assert.deepEqual(payloads(next.messages), ["other"]);
      await session.settle(next, [retry(2, 0)]);
      await enqueue(context, message(4));
      const later = await session.claim("new");
      if (later !== undefined) {
        assert.deepEqual(session.admit(later), [false]);
        await session.settle(later, [WAITING]);
      }
      assert.equal((await claimSome(session)).messages[0]?.key, "other");
      await context.store.admin.discard({ relay: "r", all: true });
      await session.leave();
      const freed = await joined(context.store);
      assert.deepEqual(new Set(payloads(await freed.take(4))), new Set([2, 3, 4, "other"]));
    },
  },
  {
    role,
    name: "counts an attempt when its outcome is known",
    async run(context) {
      const [enqueued] = await enqueue(context, message(1));
      const session = await join(context.store);
      const attempts = async () => (await context.store.admin.find({ id: enqueued!.id }))[0]?.attempts;
      const first = await claimSome(session);
      assert.equal(await attempts(), 0, "while it is tried for the first time");
      await session.settle(first, [retry(1, 0)]);
      assert.equal(await attempts(), 1);
      const second = await claimSome(session);
      assert.deepEqual(second.attempts, [1]);
      assert.equal(await attempts(), 1, "while it is tried again");
      await session.settle(second, [PUBLISHED]);
      assert.equal(await attempts(), 2);
    },
  },
  {
    role,
    name: "takes no more lanes of a dead process than its share",
    needs: ["sharing"],
    async run(context) {
      const mortal = await join(context.another(), { leaseMs: SHORT_LEASE_MS });
      await claimNothing(mortal);
      const [one, two] = [await join(context.another()), await join(context.another())];
      await eventuallyTrue(
        async () => {
          const counts = [];
          for (const session of [one, two]) {
            await session.tend();
            await nextClaim(session);
            counts.push(await lanesOf(session));
          }
          assert.deepEqual(counts, [LANES / 2, LANES / 2]);
        },
        { timeoutMs: 30_000, intervalMs: 20 },
      );
    },
  },
  {
    role,
    name: "hands out no claim without messages",
    needs: ["sharing"],
    async run(context) {
      const [one, two] = [await join(context.another()), await join(context.another())];
      await eventuallyTrue(
        async () => {
          for (const session of [one, two]) assert.equal(await nextClaim(session), undefined);
          assert.ok((await lanesOf(one)) > 0 && (await lanesOf(two)) > 0);
        },
        { timeoutMs: 30_000, intervalMs: 20 },
      );
      // All of one key: one of the two processes has nothing to do with them.
      await enqueue(context, ...numbered(1, 10));
      let published = 0;
      await eventuallyTrue(
        async () => {
          for (const session of [one, two]) {
            await session.tend();
            const claim = await nextClaim(session);
            if (claim === undefined) continue;
            assert.ok(claim.messages.length > 0);
            await session.settle(
              claim,
              claim.messages.map(() => PUBLISHED),
            );
            published += claim.messages.length;
          }
          assert.equal(published, 10);
        },
        { timeoutMs: 30_000, intervalMs: 20 },
      );
      for (const session of [one, two]) assert.equal(await nextClaim(session), undefined);
      assert.equal((await context.store.admin.relays())[0]?.pending, 0);
    },
  },
  {
    role,
    name: "settles an attempt that went on while lanes were given away and commands were carried out",
    needs: ["sharing"],
    async run(context) {
      await enqueue(context, ...spread(40));
      const session = await join(context.another());
      const claim = await claimSome(session);
      const running = session.detach(claim, 0);
      await session.settle(
        claim,
        claim.messages.map((_, i) => (i === 0 ? { status: "running" } : PUBLISHED)),
      );
      const lane = running.messages[0]!;
      const other = await join(context.another());
      await eventuallyTrue(
        async () => {
          await session.tend();
          await nextClaim(session);
          await other.tend();
          await nextClaim(other);
          assert.ok((await lanesOf(other)) > 0);
        },
        { timeoutMs: 30_000, intervalMs: 50 },
      );
      const settled = await session.settle(running, [PUBLISHED]).then(
        () => true,
        () => false,
      );
      await sleep(50);
      const [found] = await context.store.admin.find({ id: lane.id });
      // Its lane went to the other process, or it is settled: it is not made again by its own process.
      assert.equal(found?.status === "published", settled);
      assert.equal(settled, session.isCurrent(running));
    },
  },
];

/** A process that has its lanes and nothing to do. */
async function claimNothing(session: QueueSession): Promise<void> {
  await session.tend();
  assert.equal(await nextClaim(session), undefined);
}
