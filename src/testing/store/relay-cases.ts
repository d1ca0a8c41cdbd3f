import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { dead, joined, nextClaim, PUBLISHED, retry } from "./consumer.ts";
import { begin, enqueue, enqueueIn, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase } from "./store-context.ts";

const role = "relays";

/** Named relays: start point, stream filter, pause, rewind, drop. */
export const relayCases: readonly StoreCase[] = [
  {
    role,
    name: "are shared as the store's capabilities say",
    needs: ["sharing"],
    run: ({ store }) => Promise.resolve(assert.equal(store.capabilities.sharedRelays, true)),
  },
  {
    role,
    name: "read one log as the store's capabilities say",
    needs: ["log"],
    run: ({ store }) => Promise.resolve(assert.equal(store.capabilities.namedRelays, true)),
  },
  {
    role,
    name: "gives every relay every message, each at its own pace",
    needs: ["log"],
    async run(context) {
      const fast = await joined(context.store, { relay: "fast" });
      const slow = await joined(context.store, { relay: "slow", batch: { messages: 1, bytes: 1_000_000 } });
      await enqueue(context, ...numbered(1, 4));
      assert.deepEqual(payloads(await fast.drain()), range(1, 4));
      await slow.step();
      await enqueue(context, ...numbered(5, 6));
      assert.deepEqual(payloads(await fast.drain()), [5, 6]);
      assert.deepEqual(payloads(await slow.drain()), range(2, 6));
      const late = await joined(context.store, { relay: "late" });
      assert.deepEqual(payloads(await late.drain()), range(1, 6));
    },
  },
  {
    role,
    name: "parks for one relay and not for another",
    needs: ["log"],
    async run(context) {
      const failing = await joined(context.store, { relay: "failing" }, { judge: (_, n) => retry(n + 1, 60_000) });
      const fine = await joined(context.store, { relay: "fine" });
      await enqueue(context, ...numbered(1, 3));
      await failing.drain();
      assert.deepEqual(payloads(await fine.drain()), [1, 2, 3]);
      const parked = (await context.store.admin.relays()).map((relay) => [relay.name, relay.parked]);
      assert.deepEqual(parked, [
        ["failing", 3],
        ["fine", 0],
      ]);
    },
  },
  {
    role,
    name: "gives a relay only its streams, which stay as they were when it was made",
    async run(context) {
      const options = { streams: ["a", "c"] };
      const first = await joined(context.store, options);
      await enqueue(context, ...["a", "b", "c", "b", "a"].map((stream, i) => message(i, { stream })));
      assert.deepEqual(payloads(await first.drain()), [0, 2, 4]);
      await enqueue(context, message("only b", { stream: "b" }));
      assert.deepEqual(await first.drain(), []);
      await first.session.leave();
      await assert.rejects(joined(context.another(), { streams: ["b"] }), { code: "invalid_option", field: "streams" });
      const second = await joined(context.another());
      await enqueue(context, message(5, { stream: "b" }), message(6, { stream: "c" }));
      assert.deepEqual(payloads(await second.take(1)), [6]);
      assert.deepEqual((await context.store.admin.relays())[0]?.streams, ["a", "c"]);
    },
  },
  {
    role,
    name: "starts with what comes, and leaves what is there",
    async run(context) {
      await enqueue(context, ...numbered(1, 2));
      const now = await joined(context.store, { start: "now" });
      assert.deepEqual(await now.drain(), []);
      await enqueue(context, message(3));
      assert.deepEqual(payloads(await now.drain()), [3]);
      await now.session.leave();
      const again = await joined(context.another(), { start: "earliest" });
      assert.deepEqual(await again.drain(), []);
    },
  },
  {
    role,
    name: "starts with all that is there, whatever other relays have begun with",
    needs: ["log"],
    async run(context) {
      await enqueue(context, ...numbered(1, 2));
      const now = await joined(context.store, { relay: "now", start: "now" });
      assert.deepEqual(await now.drain(), []);
      await enqueue(context, message(3));
      assert.deepEqual(payloads(await now.drain()), [3]);
      const earliest = await joined(context.store, { relay: "earliest", start: "earliest" });
      assert.deepEqual(payloads(await earliest.drain()), [1, 2, 3]);
    },
  },
  {
    role,
    name: "does not skip a transaction that was open when the relay started with now",
    needs: ["concurrency"],
    async run(context) {
      const open = await begin(context);
      await enqueueIn(context, open.tx, [message("open")]);
      const consumer = await joined(context.store, { start: "now" });
      await enqueue(context, message("after", { key: "other" }));
      assert.deepEqual(payloads(await consumer.drain()), ["after"]);
      await open.commit();
      assert.deepEqual(payloads(await consumer.drain()), ["open"]);
    },
  },
  {
    role,
    name: "claims nothing while paused, also for keys that are due, and goes on when resumed",
    async run(context) {
      const consumer = await joined(context.store, {}, { judge: (_, n) => (n === 0 ? retry(1) : PUBLISHED) });
      await enqueue(context, message(1));
      await consumer.step();
      await context.store.admin.pause("r");
      assert.equal((await consumer.session.tend()).paused, true);
      await enqueue(context, message(2));
      assert.deepEqual(await consumer.drain(), []);
      assert.equal((await context.store.admin.relays())[0]?.paused, true);
      const joiner = await joined(context.another());
      assert.deepEqual(await joiner.drain(), []);
      await joiner.session.leave();
      await context.store.admin.resume("r");
      assert.equal((await consumer.session.tend()).paused, false);
      assert.deepEqual(payloads(await consumer.take(2)), [1, 2]);
    },
  },
  {
    role,
    name: "rewinds to the earliest, to a position and to now",
    needs: ["log"],
    async run(context) {
      const { admin } = context.store;
      const consumer = await joined(context.store);
      await enqueue(context, ...numbered(1, 6));
      const all = await consumer.drain();
      await admin.rewind("r", "earliest");
      assert.deepEqual(payloads(await consumer.take(6)), range(1, 6));
      await admin.rewind("r", { position: all[3]?.position ?? 0n });
      assert.deepEqual(payloads(await consumer.take(3)), [4, 5, 6]);
      await enqueue(context, ...numbered(7, 8));
      await admin.rewind("r", "now");
      await consumer.session.tend();
      assert.deepEqual(await consumer.drain(), []);
      await enqueue(context, message(9));
      assert.deepEqual(payloads(await consumer.take(1)), [9]);
    },
  },
  {
    role,
    name: "rewinds to a time",
    needs: ["log"],
    async run(context) {
      const { admin } = context.store;
      const consumer = await joined(context.store);
      await enqueue(context, ...numbered(1, 3));
      await sleep(20);
      await enqueue(context, ...numbered(4, 5));
      const all = await consumer.drain();
      const time = all[3]?.createdAt ?? new Date();
      await admin.rewind("r", { time });
      assert.deepEqual(payloads(await consumer.take(2)), [4, 5]);
      await admin.rewind("r", { time: new Date(0) });
      assert.deepEqual(payloads(await consumer.take(5)), range(1, 5));
      await admin.rewind("r", { time: new Date(Date.now() + 3_600_000) });
      await consumer.session.tend();
      assert.deepEqual(await consumer.drain(), []);
      await enqueue(context, message(6));
      assert.deepEqual(payloads(await consumer.take(1)), [6]);
    },
  },
  {
    role,
    name: "rewinds without losing a transaction that is still open",
    needs: ["log", "concurrency"],
    async run(context) {
      const { admin } = context.store;
      const since = new Date(Date.now() - 60_000);
      const targets = ["earliest", "now", { time: since }, { time: new Date(Date.now() + 60_000) }] as const;
      const consumer = await joined(context.store);
      for (const [n, target] of targets.entries()) {
        const open = await begin(context);
        await enqueueIn(context, open.tx, [message(`open ${n}`, { key: `o${n}` })]);
        await enqueue(context, message(`done ${n}`, { key: `d${n}` }));
        await consumer.drain();
        await admin.rewind("r", target);
        await consumer.session.tend();
        await consumer.drain();
        await open.commit();
        const after = payloads(await consumer.drain());
        assert.ok(after.includes(`open ${n}`), `rewind to ${JSON.stringify(target)} lost what committed after it`);
      }
    },
  },
  {
    role,
    name: "voids what was in hand when it is rewound",
    needs: ["log", "promptProgress"],
    async run(context) {
      const consumer = await joined(context.store);
      await enqueue(context, ...numbered(1, 3));
      await consumer.drain();
      await enqueue(context, ...numbered(4, 5));
      const claim = await nextClaim(consumer.session);
      assert.ok(claim !== undefined);
      await context.store.admin.rewind("r", "earliest");
      await assert.rejects(
        consumer.session.settle(
          claim,
          claim.messages.map(() => PUBLISHED),
        ),
        { code: "lease_lost" },
      );
      assert.deepEqual(payloads(await consumer.take(5)), range(1, 5));
    },
  },
  {
    role,
    name: "delivers what was parked once after a rewind, and in order",
    needs: ["log"],
    async run(context) {
      let broken = true;
      const consumer = await joined(context.store);
      consumer.judge = (one, n) => (broken && one.key === "k" ? retry(n + 1, 60_000) : PUBLISHED);
      await enqueue(context, ...numbered(1, 4), message("other", { key: "other" }));
      await consumer.drain();
      broken = false;
      await context.store.admin.rewind("r", "earliest");
      const got = await consumer.take(5);
      assert.deepEqual(payloads(got.filter((one) => one.key === "k")), range(1, 4));
      await consumer.session.tend();
      assert.deepEqual(await consumer.drain(), []);
      assert.equal((await consumer.session.tend()).parked, 0);
      const [figures] = await context.store.admin.relays();
      assert.deepEqual([figures?.parked, figures?.blockedKeys, figures?.pending], [0, 0, 0]);
    },
  },
  {
    role,
    name: "delivers dead letters again after a rewind, in order",
    needs: ["log"],
    async run(context) {
      const { admin } = context.store;
      const consumer = await joined(context.store);
      consumer.judge = ({ type }) => (type === "bad" ? dead(1, true) : PUBLISHED);
      await enqueue(context, message(1), message(2, { type: "bad" }), message(3));
      await consumer.drain();
      await admin.rewind("r", "earliest");
      consumer.judge = () => PUBLISHED;
      assert.deepEqual(payloads(await consumer.take(3)), [1, 2, 3]);
      assert.deepEqual(await admin.dead({}), []);
      await enqueue(context, message(4));
      assert.deepEqual(payloads(await consumer.drain()), [4]);
    },
  },
  {
    role,
    name: "keeps what is parked when it is rewound to now",
    needs: ["log"],
    async run(context) {
      let broken = true;
      const consumer = await joined(context.store);
      consumer.judge = (_, n) => (broken ? retry(n + 1, 100) : PUBLISHED);
      await enqueue(context, ...numbered(1, 3));
      await consumer.drain();
      await context.store.admin.rewind("r", "now");
      broken = false;
      assert.deepEqual(payloads(await consumer.take(3)), [1, 2, 3]);
    },
  },
  {
    role,
    name: "ends the sessions of a relay that is dropped, and leaves others alone",
    needs: ["log"],
    async run(context) {
      const gone = await joined(context.store, { relay: "gone" }, { judge: (_, n) => retry(n + 1) });
      const stays = await joined(context.store, { relay: "stays" });
      await enqueue(context, ...numbered(1, 2));
      await gone.step();
      await context.store.admin.drop("gone");
      await assert.rejects(gone.session.tend(), { code: "relay_dropped" });
      assert.equal(await nextClaim(gone.session), undefined);
      assert.deepEqual(
        (await context.store.admin.relays()).map(({ name }) => name),
        ["stays"],
      );
      assert.deepEqual(payloads(await stays.drain()), [1, 2]);
      const again = await joined(context.store, { relay: "gone" });
      assert.deepEqual(payloads(await again.drain()), [1, 2]);
    },
  },
  {
    role,
    name: "says so when there is no such relay",
    async run(context) {
      const { admin } = context.store;
      const missing = { code: "not_found" };
      await assert.rejects(admin.pause("missing"), missing);
      await assert.rejects(admin.resume("missing"), missing);
      await assert.rejects(admin.rewind("missing", "earliest"), missing);
      await assert.rejects(admin.drop("missing"), missing);
    },
  },
];
