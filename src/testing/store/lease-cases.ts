import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { systemClock } from "../../core/clock.ts";
import type { Claim, Clock } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import { eventuallyTrue } from "../eventually.ts";
import { claimSome, dead, join, joined, LONG_LEASE_MS, nextClaim, PUBLISHED, retry, WAITING } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "leases";
/** Long enough for a case to act within it on a busy machine, short enough to be waited for. */
const SHORT_LEASE_MS = 750;

const lost = { code: "lease_lost" };
const published = (claim: Claim) => claim.messages.map(() => PUBLISHED);

function unlessTooSlow(error: unknown): undefined {
  assert.equal(errorCode(error), "unavailable");
}

async function leaseLeft(context: StoreContext): Promise<number> {
  const [relay] = await context.store.admin.relays();
  return Math.min(...(relay?.lanes ?? []).map(({ leaseMs }) => leaseMs));
}

/** A clock that runs as the system's does, but says another time. */
function shifted(byMs: number): Clock {
  return { monotonic: () => systemClock.monotonic() + byMs, sleep: (ms, signal) => systemClock.sleep(ms, signal) };
}

/** Who owns a lane, who takes it over, and what an owner that lost it may still do: nothing. */
export const leaseCases: readonly StoreCase[] = [
  {
    role,
    name: "gives a lane to one owner while its lease runs",
    async run(context) {
      await enqueue(context, ...numbered(1, 3));
      const holder = await join(context.store);
      const claim = await claimSome(holder);
      const other = await join(context.another());
      for (let i = 0; i < 3; i++) {
        await other.tend();
        assert.equal(await nextClaim(other), undefined);
      }
      await holder.settle(claim, published(claim));
    },
  },
  {
    role,
    name: "says until when claimed messages may be published, and no longer than the lease",
    async run(context) {
      const before = systemClock.monotonic();
      const session = await join(context.store, { leaseMs: 5000 });
      assert.ok(session.validUntil > systemClock.monotonic(), "a fresh lease is valid");
      assert.ok(session.validUntil <= systemClock.monotonic() + 5000, "it is not longer than it was asked for");
      await sleep(30);
      await session.tend();
      assert.ok(session.validUntil > before + 5000 * 0.5);
      await session.leave();
      assert.ok(session.validUntil <= systemClock.monotonic(), "it ends with the session");
    },
  },
  {
    role,
    name: "hands over what an owner held when its lease has run out, in order",
    async run(context) {
      await enqueue(context, ...numbered(1, 5));
      const gone = await join(context.store, { leaseMs: SHORT_LEASE_MS, batch: { messages: 2, bytes: 1_000_000 } });
      const first = await claimSome(gone);
      await gone.settle(first, published(first));
      await nextClaim(gone);
      const startedAt = performance.now();
      const heir = await joined(context.another());
      assert.deepEqual(payloads(await heir.take(3)), [3, 4, 5]);
      assert.ok(performance.now() - startedAt < LONG_LEASE_MS / 4);
    },
  },
  {
    role,
    name: "settles nothing for an owner that was replaced",
    async run(context) {
      await enqueue(context, message(1, { key: "a" }), message(2, { key: "b" }), message(3, { key: "c" }));
      const old = await join(context.store, { leaseMs: SHORT_LEASE_MS });
      const claim = await claimSome(old);
      const heir = await joined(context.another());
      assert.deepEqual(payloads(await heir.take(3)), [1, 2, 3]);
      await assert.rejects(old.settle(claim, [retry(1), dead(1, true), PUBLISHED]), lost);
      const [figures] = await context.store.admin.relays();
      assert.deepEqual([figures?.published, figures?.parked, figures?.blockedKeys, figures?.dead], [3n, 0, 0, 0]);
      await enqueue(context, message(4, { key: "a" }), message(5, { key: "b" }));
      assert.deepEqual(payloads(await heir.take(2)), [4, 5]);
    },
  },
  {
    role,
    name: "settles nothing of any claim that was read ahead before the lease was lost",
    async run(context) {
      await enqueue(context, ...numbered(1, 4));
      const old = await join(context.store, { leaseMs: SHORT_LEASE_MS, batch: { messages: 2, bytes: 1_000_000 } });
      const first = await claimSome(old);
      const second = await nextClaim(old);
      assert.ok(second !== undefined);
      const heir = await join(context.another());
      const taken = await claimSome(heir);
      const results = await Promise.allSettled([
        old.settle(first, published(first)),
        old.settle(second, published(second)),
      ]);
      for (const result of results) {
        assert.equal(result.status, "rejected");
        assert.equal(errorCode(result.reason), "lease_lost");
      }
      await heir.settle(taken, published(taken));
      assert.equal((await context.store.admin.relays())[0]?.published, 4n);
    },
  },
  {
    role,
    name: "lets an owner that was replaced publish and claim nothing more",
    async run(context) {
      await enqueue(context, ...numbered(1, 4));
      const old = await join(context.store, { leaseMs: SHORT_LEASE_MS, batch: { messages: 2, bytes: 1_000_000 } });
      const claim = await claimSome(old);
      const heir = await join(context.another());
      const taken = await claimSome(heir);
      await old.tend().catch(() => undefined);
      assert.ok(old.validUntil <= systemClock.monotonic(), "there is no time left to publish in");
      assert.equal(await nextClaim(old), undefined);
      assert.deepEqual(old.admit(claim), [false, false]);
      await heir.settle(taken, published(taken));
    },
  },
  {
    role,
    name: "keeps an owner that tends its lease",
    async run(context) {
      await enqueue(context, ...numbered(1, 2));
      const keeper = await join(context.store, { leaseMs: 2000 });
      const claim = await claimSome(keeper);
      const other = await join(context.another());
      for (let i = 0; i < 6; i++) {
        await sleep(400);
        await keeper.tend();
        assert.ok((await leaseLeft(context)) > 0, "the lease ran out");
        await other.tend();
        assert.equal(await nextClaim(other), undefined);
      }
      await keeper.settle(claim, published(claim));
    },
  },
  {
    role,
    name: "keeps an owner that goes on settling",
    async run(context) {
      await enqueue(context, ...numbered(1, 8));
      const keeper = await join(context.store, { leaseMs: 2000, batch: { messages: 1, bytes: 1_000_000 } });
      const other = await join(context.another());
      for (let n = 1; n <= 8; n++) {
        const claim = await nextClaim(keeper);
        assert.deepEqual(payloads(claim?.messages ?? []), [n]);
        await sleep(340);
        if (claim !== undefined) await keeper.settle(claim, published(claim));
        assert.ok((await leaseLeft(context)) > 0, "the lease ran out");
        await other.tend();
        assert.equal(await nextClaim(other), undefined);
      }
    },
  },
  {
    role,
    name: "frees everything at once when an owner leaves",
    async run(context) {
      const leaver = await joined(context.store);
      await enqueue(context, ...numbered(1, 3));
      assert.equal((await leaver.drain()).length, 3);
      await leaver.session.leave();
      await enqueue(context, message(4));
      const next = await joined(context.another());
      assert.deepEqual(payloads(await next.take(1, LONG_LEASE_MS / 4)), [4]);
      assert.equal(await nextClaim(leaver.session), undefined);
    },
  },
  {
    role,
    name: "refuses the settle of an owner that has left",
    async run(context) {
      await enqueue(context, message(1));
      const leaver = await join(context.store);
      const claim = await claimSome(leaver);
      await leaver.leave();
      await assert.rejects(leaver.settle(claim, published(claim)), lost);
      const next = await joined(context.another());
      assert.deepEqual(payloads(await next.take(1)), [1]);
    },
  },
  {
    role,
    name: "goes by the database's clock: a process an hour off takes nothing and loses nothing",
    async run(context) {
      await enqueue(context, ...numbered(1, 2));
      const right = await join(context.store);
      const claim = await claimSome(right);
      for (const byMs of [3_600_000, -3_600_000]) {
        const wrong = await join(context.another({ clock: shifted(byMs) }));
        for (let i = 0; i < 3; i++) {
          await wrong.tend();
          assert.equal(await nextClaim(wrong), undefined);
        }
        await wrong.leave();
      }
      await right.settle(claim, published(claim));
      await right.leave();
      await enqueue(context, message(3));
      const wrong = await joined(context.another({ clock: shifted(3_600_000) }), { leaseMs: 5000 });
      assert.deepEqual(payloads(await wrong.take(1)), [3]);
      const other = await join(context.store);
      await other.tend();
      assert.equal(await nextClaim(other), undefined);
    },
  },
  {
    role,
    name: "keeps a key blocked when its owner is replaced",
    async run(context) {
      await enqueue(context, message("a1", { key: "a" }), message("a2", { key: "a" }), message("b1", { key: "b" }));
      const old = await join(context.store, { leaseMs: SHORT_LEASE_MS });
      const claim = await claimSome(old);
      await old.settle(claim, [retry(1, 700), WAITING, PUBLISHED]);
      await enqueue(context, message("a3", { key: "a" }), message("b2", { key: "b" }));
      const heir = await joined(context.another());
      await heir.take(4);
      assert.deepEqual(payloads(heir.published.filter(({ key }) => key === "a")), ["a1", "a2", "a3"]);
      assert.deepEqual(payloads(heir.published.filter(({ key }) => key === "b")), ["b2"]);
    },
  },
  {
    role,
    name: "goes on from where the other left it when an owner gets its lanes back",
    async run(context) {
      await enqueue(context, ...numbered(1, 4));
      const old = await joined(context.store, { leaseMs: SHORT_LEASE_MS, batch: { messages: 2, bytes: 1_000_000 } });
      const claim = await claimSome(old.session);
      const between = await joined(context.another(), { batch: { messages: 1, bytes: 1_000_000 } });
      const taken = await claimSome(between.session);
      await between.session.settle(taken, [retry(1, 0)]);
      await between.session.leave();
      await assert.rejects(old.session.settle(claim, published(claim)), lost);
      assert.deepEqual(payloads(await old.take(4)), range(1, 4));
    },
  },
  {
    role,
    name: "either settles or hands over when a settle meets a take-over",
    needs: ["concurrency"],
    async run(context) {
      const heir = await joined(context.another(), { relay: "r" });
      await heir.session.leave();
      let settled = 0;
      const rounds = 12;
      for (let round = 0; round < rounds; round++) {
        await enqueue(context, message(round));
        const owner = await join(context.store, { leaseMs: 200 });
        // No read lasts longer than the lease: on a busy machine none may be through within this one.
        const claim = await nextClaim(owner).catch(unlessTooSlow);
        if (claim === undefined) continue;
        await sleep(190 + round);
        const next = await join(context.another());
        const racing = owner.settle(claim, published(claim)).then(
          () => (settled += claim.messages.length),
          (error: unknown) => assert.equal(errorCode(error), "lease_lost"),
        );
        const taking = async () => {
          await next.tend();
          await nextClaim(next);
        };
        await Promise.all([racing, taking()]);
        await next.leave();
        await owner.leave();
      }
      const last = await joined(context.store);
      const rest = await eventuallyTrue(async () => {
        await last.session.tend();
        await last.drain();
        assert.equal((await context.store.admin.relays())[0]?.pending, 0);
        return last.published.length;
      });
      assert.equal(settled + rest, rounds);
      assert.equal((await context.store.admin.relays())[0]?.published, BigInt(rounds));
    },
  },
];
