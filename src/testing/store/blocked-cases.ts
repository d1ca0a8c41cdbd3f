import assert from "node:assert/strict";
import type { BlockedKey, BlockedPlace } from "../../core/contracts.ts";
import { dead, joined, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message, numbered, range, sorted } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "blocked keys";

async function paged(context: StoreContext, limit: number): Promise<BlockedKey[]> {
  const all: BlockedKey[] = [];
  for (let after: BlockedPlace | undefined; ;) {
    const page = await context.store.admin.blocked({ limit, ...(after === undefined ? {} : { after }) });
    all.push(...page);
    if (page.length < limit) return all;
    after = page.at(-1);
  }
}

const near = (date: Date | null, ms: number): boolean => date !== null && Math.abs(date.getTime() - ms) < 120_000;

/** What people see of keys that wait for a message to go through. */
export const blockedCases: readonly StoreCase[] = [
  {
    role,
    name: "shows what failed, why, what waits behind it, since when, and when it is tried again",
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = ({ type }, n) => (type === "bad" ? retry(n + 1, 3_600_000, "it is on fire") : PUBLISHED);
      const sent = await enqueue(context, message(1, { type: "bad" }), ...numbered(2, 4), message(5, { key: "free" }));
      await consumer.drain();
      await enqueue(context, message(6));
      await consumer.drain();
      const found = await context.store.admin.blocked({});
      assert.equal(found.length, 1);
      const [blocked] = found;
      assert.ok(blocked !== undefined);
      const { relay, stream, key, id, attempts, lastError, heldByDead, waiting } = blocked;
      assert.deepEqual(
        { relay, stream, key, id, attempts, lastError, heldByDead, waiting },
        {
          relay: "r",
          stream: "s",
          key: "k",
          id: sent[0]?.id,
          attempts: 1,
          lastError: "it is on fire",
          heldByDead: false,
          waiting: 4,
        },
      );
      assert.ok(near(blocked.since, Date.now()), String(blocked.since));
      assert.ok(near(blocked.nextAttemptAt, Date.now() + 3_600_000), String(blocked.nextAttemptAt));
      const [front] = await context.store.admin.find({ id: sent[0]?.id ?? "" });
      assert.equal(blocked.position, front?.position);
    },
  },
  {
    role,
    name: "tells of a dead letter that holds its key, with and without messages behind it",
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = ({ type }) => (type === "bad" ? dead(3, true, "it can never work") : PUBLISHED);
      const sent = await enqueue(
        context,
        message(1, { type: "bad", key: "alone" }),
        message(2, { type: "bad", key: "first" }),
        ...numbered(3, 5, { key: "first" }),
      );
      await consumer.drain();
      const found = await context.store.admin.blocked({});
      assert.deepEqual(
        found
          .map(({ key, id, heldByDead, waiting, lastError, attempts }) => [
            key,
            id,
            heldByDead,
            waiting,
            lastError,
            attempts,
          ])
          .toSorted((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1)),
        [
          ["alone", sent[0]?.id, true, 0, "it can never work", 3],
          ["first", sent[1]?.id, true, 3, "it can never work", 3],
        ],
      );
      assert.ok(found.every(({ since, nextAttemptAt }) => near(since, Date.now()) && nextAttemptAt === null));
      await context.store.admin.discard({ all: true });
      await consumer.session.tend();
      await consumer.drain();
      assert.deepEqual(await context.store.admin.blocked({}), []);
    },
  },
  {
    role,
    name: "shows a message without a key by itself",
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = (_, n) => retry(n + 1, 3_600_000);
      const sent = await enqueue(context, ...range(1, 3).map((n) => ({ stream: "s", type: "t", payload: n })));
      await consumer.drain();
      const found = await paged(context, 2);
      assert.deepEqual(sorted(found.map(({ id }) => id)), sorted(sent.map(({ id }) => id)));
      assert.ok(found.every(({ key, waiting }) => key === null && waiting === 0));
    },
  },
  {
    role,
    name: "gives pages in one order, each key once, and filters by relay, stream and key",
    async run(context) {
      const consumer = await joined(context.store);
      consumer.judge = ({ stream }, n) => (stream === "held" ? dead(1, true) : retry(n + 1, 3_600_000));
      const keys = range(1, 60).map((n) => `k${n}`);
      await enqueue(
        context,
        ...keys.flatMap((key) => [message(1, { key }), message(2, { key })]),
        ...keys.map((key) => message(3, { key, stream: "held" })),
        // More than a page has room for wait behind one key.
        ...numbered(1, 80, { key: "k7" }),
      );
      await consumer.drain();
      const found = await paged(context, 7);
      const names = found.map(({ stream, key }) => `${stream}/${key}`);
      assert.equal(new Set(names).size, names.length, "a key came twice");
      assert.deepEqual(
        names.toSorted(),
        [...keys.map((key) => `held/${key}`), ...keys.map((key) => `s/${key}`)].toSorted(),
      );
      assert.deepEqual(
        found
          .filter(({ key }) => key === "k7")
          .map(({ waiting }) => waiting)
          .toSorted((a, b) => a - b),
        [0, 81],
      );
      const { admin } = context.store;
      assert.equal((await admin.blocked({ stream: "held", limit: 1000 })).length, 60);
      assert.equal((await admin.blocked({ key: "k3" })).length, 2);
      assert.equal((await admin.blocked({ relay: "r", stream: "s", key: "k3" })).length, 1);
      assert.deepEqual(await admin.blocked({ relay: "other" }), []);
      await assert.rejects(async () => admin.blocked({ limit: 0 }), { code: "invalid_option" });
      await assert.rejects(async () => admin.blocked({ keys: "k" } as never), { code: "invalid_option" });
    },
  },
];
