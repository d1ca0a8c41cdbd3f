import assert from "node:assert/strict";
import { errorGroup } from "../../core/error-group.ts";
import { dead, joined, PUBLISHED, type Consumer } from "./consumer.ts";
import { enqueue, payloads, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "groups of dead letters";

/** Messages that die of what their payload says. */
async function withDeaths(
  context: StoreContext,
  ...deaths: { type: string; error: string; key: string }[]
): Promise<Consumer> {
  const consumer = await joined(context.store, {}, { judge: (one) => dead(1, false, payloads([one])[0] as string) });
  await enqueue(context, ...deaths.map(({ type, error, key }) => ({ stream: "s", type, key, payload: error })));
  for (let i = 0; i < 20 && (await context.store.admin.dead({})).length < deaths.length; i++) {
    await consumer.session.tend();
    await consumer.drain();
  }
  return consumer;
}

const refused = (n: number) => ({ type: "paid", error: `connect ECONNREFUSED 10.0.0.${n}:5672`, key: `k${n % 2}` });
const unknown = (n: number) => ({ type: "paid", error: `There is no order "o-${n}"`, key: `u${n}` });
const other = (n: number) => ({ type: "sent", error: `connect ECONNREFUSED 10.0.0.${n}:5672`, key: `o${n}` });

export const deadGroupCases: readonly StoreCase[] = [
  {
    role,
    name: "groups dead letters by their error, most letters first",
    async run(context) {
      await withDeaths(context, unknown(1), refused(1), refused(2), other(1), refused(3), unknown(2));
      const groups = await context.store.admin.deadGroups({});
      assert.deepEqual(
        groups.map(({ relay, stream, type, count, estimated, keys }) => [relay, stream, type, count, estimated, keys]),
        [
          ["r", "s", "paid", 3, false, 2],
          ["r", "s", "paid", 2, false, 2],
          ["r", "s", "sent", 1, false, 1],
        ],
      );
      const [first] = groups;
      assert.ok(first !== undefined);
      assert.equal(first.group, errorGroup("paid", refused(9).error));
      assert.match(first.error, /^connect ECONNREFUSED 10\.0\.0\.\d:5672$/);
      assert.ok(first.firstDiedAt <= first.lastDiedAt);
      const [example] = await context.store.admin.dead({ id: first.example.id });
      assert.equal(example?.group, first.group);
      assert.equal(example?.lastError, first.error);
      assert.equal(example?.position, first.example.position);
    },
  },
  {
    role,
    name: "has only what is asked for",
    async run(context) {
      await withDeaths(context, unknown(1), refused(1), refused(2), other(1));
      const { admin } = context.store;
      const counts = async (query: object) => (await admin.deadGroups(query)).map(({ count }) => count);
      assert.deepEqual(await counts({ relay: "r" }), [2, 1, 1]);
      assert.deepEqual(await counts({ relay: "no such relay" }), []);
      assert.deepEqual(await counts({ type: "sent" }), [1]);
      assert.deepEqual(await counts({ stream: "s", type: "paid" }), [2, 1]);
      assert.deepEqual(await counts({ stream: "other" }), []);
      assert.deepEqual(await counts({ limit: 1 }), [2]);
    },
  },
  {
    role,
    name: "lists, requeues and discards the letters of a group",
    async run(context) {
      const consumer = await withDeaths(context, unknown(1), refused(1), refused(2), other(1), refused(3));
      const { admin } = context.store;
      const group = errorGroup("paid", refused(1).error);
      const letters = await admin.dead({ group });
      assert.deepEqual(
        letters.map((letter) => letter.group),
        [group, group, group],
      );
      assert.deepEqual(payloads(await admin.dead({ group, limit: 1, after: letters[1]! })), payloads([letters[2]!]));
      consumer.judge = () => PUBLISHED;
      assert.equal(await admin.requeue({ group, limit: 2 }), 2);
      assert.deepEqual(new Set(payloads(await consumer.take(2))), new Set(payloads(letters.slice(0, 2))));
      assert.deepEqual(
        (await admin.deadGroups({})).map(({ count }) => count),
        [1, 1, 1],
      );
      assert.equal(await admin.discard({ group: errorGroup("sent", other(1).error) }), 1);
      assert.equal(await admin.requeue({ group: "000000000000" }), 0);
      await consumer.session.tend();
      await consumer.drain();
      assert.deepEqual(
        (await admin.deadGroups({})).map(({ type, count }) => [type, count]),
        [
          ["paid", 1],
          ["paid", 1],
        ],
      );
    },
  },
  {
    role,
    name: "moves a letter that dies again of something else to another group",
    async run(context) {
      const consumer = await withDeaths(context, refused(1), refused(2));
      const { admin } = context.store;
      await admin.requeue({ all: true });
      consumer.judge = () => dead(1, false, "it has no price");
      for (let i = 0; i < 20 && (await admin.deadGroups({}))[0]?.error !== "it has no price"; i++) {
        await consumer.session.tend();
        await consumer.drain();
      }
      const groups = await admin.deadGroups({});
      assert.deepEqual(
        groups.map(({ group, count }) => [group, count]),
        [[errorGroup("paid", "it has no price"), 2]],
      );
    },
  },
  {
    role,
    name: "requeues exactly the letters that are named",
    async run(context) {
      const consumer = await withDeaths(context, ...range(1, 5).map(unknown));
      const { admin } = context.store;
      const letters = await admin.dead({});
      consumer.judge = () => PUBLISHED;
      const named = [letters[3]!, letters[1]!];
      assert.equal(await admin.requeue({ letters: named }), 2);
      assert.deepEqual(new Set(payloads(await consumer.take(2))), new Set(payloads(named)));
      assert.equal(await admin.requeue({ letters: named }), 0);
      assert.equal(await admin.requeue({ letters: [{ ...letters[0]!, relay: "another" }], relay: "another" }), 0);
      assert.equal((await admin.dead({})).length, 3);
    },
  },
];
