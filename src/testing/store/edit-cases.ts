import assert from "node:assert/strict";
import { dead, joined, PUBLISHED, retry, type Consumer } from "./consumer.ts";
import { enqueue, message, payloads, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "edits";

/** Messages 1 to 4 of a key, of which 2 is dead and holds the others if it blocks. */
async function withLetter(context: StoreContext, block = true): Promise<{ consumer: Consumer; id: string }> {
  const consumer = await joined(context.store);
  consumer.judge = ({ type }) => (type === "bad" ? dead(1, block, "poison") : PUBLISHED);
  const headers = { correlationId: "c", causationId: "before", own: "ü" };
  await enqueue(context, ...range(1, 4).map((n) => message({ n }, { type: n === 2 ? "bad" : "good", headers })));
  for (let i = 0; i < 20 && (await context.store.admin.dead({})).length === 0; i++) {
    await consumer.session.tend();
    await consumer.drain();
  }
  const [letter] = await context.store.admin.dead({});
  assert.ok(letter !== undefined);
  return { consumer, id: letter.id };
}

const untilDead = async ({ store: { admin } }: StoreContext, consumer: Consumer, attempts: number): Promise<void> => {
  for (let i = 0; i < 100; i++) {
    const [letter] = await admin.dead({});
    if (letter !== undefined && letter.command === null && letter.attempts >= attempts) return;
    await consumer.session.tend();
    await consumer.drain();
  }
  assert.fail("the letter did not die again");
};

export const editCases: readonly StoreCase[] = [
  {
    role,
    name: "are what is delivered, in the place of the message and under its name",
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      const [before] = await admin.dead({});
      await admin.edit({ relay: "r", id }, { payload: { n: 2, mended: true }, headers: { other: 1 } });
      const [letter] = await admin.dead({});
      assert.deepEqual([letter?.edited, letter?.state, letter?.command], [true, "dead", null]);
      assert.deepEqual(payloads([letter!]), [{ n: 2, mended: true }]);
      assert.equal(await admin.requeue({ id }), 1);
      consumer.judge = () => PUBLISHED;
      const [delivered, ...rest] = await consumer.take(3);
      assert.ok(delivered !== undefined);
      assert.deepEqual(payloads([delivered, ...rest]), [{ n: 2, mended: true }, { n: 3 }, { n: 4 }]);
      assert.deepEqual({ ...delivered.headers }, { correlationId: "c", causationId: "before", other: 1 });
      for (const field of ["id", "position", "stream", "type", "key", "createdAt"] as const)
        assert.deepEqual(delivered[field], before?.[field], field);
      assert.equal((await consumer.session.tend()).blockedKeys, 0);
    },
  },
  {
    role,
    name: "keep what the message was, however often it is edited",
    async run(context) {
      const { id } = await withLetter(context);
      const { admin } = context.store;
      const name = { relay: "r", id };
      const isOriginal = async () => {
        const original = await admin.original(name);
        assert.deepEqual(payloads([original!]), [{ n: 2 }]);
        assert.deepEqual({ ...original!.headers }, { correlationId: "c", causationId: "before", own: "ü" });
      };
      await isOriginal();
      await admin.edit(name, { payload: "first" });
      await isOriginal();
      await admin.edit(name, { headers: {} });
      await admin.edit(name, { payload: ["second"] });
      await isOriginal();
      const [letter] = await admin.dead({});
      assert.deepEqual(payloads([letter!]), [["second"]]);
      assert.deepEqual({ ...letter!.headers }, { correlationId: "c", causationId: "before" });
      assert.equal(await admin.original({ relay: "r", id: "no such id" }), null);
      assert.equal(await admin.original({ relay: "another", id }), null);
    },
  },
  {
    role,
    name: "change the payload or the headers, and leave the other",
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      await admin.edit({ relay: "r", id }, { headers: { own: "a", correlationId: "c" } });
      await admin.edit({ relay: "r", position: (await admin.dead({}))[0]!.position }, { payload: null });
      await admin.requeue({ id });
      consumer.judge = () => PUBLISHED;
      const [delivered] = await consumer.take(3);
      assert.deepEqual(payloads([delivered!]), [null]);
      assert.deepEqual({ ...delivered!.headers }, { correlationId: "c", causationId: "before", own: "a" });
    },
  },
  {
    role,
    name: "take bytes, and texts as they are",
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      const name = { relay: "r", id };
      await admin.edit(name, { body: '{ "n" : 1e400, "n": -0 }' });
      assert.equal((await admin.dead({}))[0]?.body, '{ "n" : 1e400, "n": -0 }');
      await admin.edit(name, { body: new Uint8Array([0, 255]), headers: { contentType: "application/x-own" } });
      assert.deepEqual([...Buffer.from((await admin.dead({}))[0]!.body)], [0, 255]);
      await admin.edit(name, { payload: new Uint8Array([1, 2, 3]) });
      await admin.requeue({ id });
      consumer.judge = () => PUBLISHED;
      const [delivered] = await consumer.take(3);
      assert.deepEqual([...Buffer.from(delivered!.body)], [1, 2, 3]);
      assert.equal(delivered!.headers.contentType, "application/x-own");
    },
  },
  {
    role,
    name: "are delivered at every attempt, and by another process",
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      const tried: unknown[] = [];
      await admin.edit({ relay: "r", id }, { payload: "mended" });
      await admin.requeue({ id });
      consumer.judge = (one, attempts) => {
        tried.push(...payloads([one]));
        return retry(attempts + 1, 0);
      };
      for (let i = 0; i < 50 && tried.length < 3; i++) {
        await consumer.session.tend();
        await consumer.step();
      }
      assert.deepEqual(tried.slice(0, 3), ["mended", "mended", "mended"]);
      await consumer.session.leave();
      const next = await joined(context.another());
      assert.deepEqual(payloads(await next.take(3)), ["mended", { n: 3 }, { n: 4 }]);
    },
  },
  {
    role,
    name: "are delivered though the process that requeued the letter has died",
    needs: ["sharing"],
    async run(context) {
      const { consumer, id } = await withLetter(context);
      await consumer.session.leave();
      const { admin } = context.store;
      const brief = await joined(context.another(), { leaseMs: 1000 });
      await admin.edit({ relay: "r", id }, { payload: "mended" });
      await admin.requeue({ id });
      await brief.session.tend();
      const claim = await brief.session.claim("retry");
      assert.deepEqual(payloads(claim?.messages ?? []).slice(0, 1), ["mended"]);
      // It does not come again.
      const next = await joined(context.another());
      assert.deepEqual(payloads(await next.take(3, 15_000)), ["mended", { n: 3 }, { n: 4 }]);
    },
  },
  {
    role,
    name: "stay when the letter dies again, and can be made anew",
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      await admin.edit({ relay: "r", id }, { payload: "still wrong" });
      await admin.requeue({ id });
      await untilDead(context, consumer, 2);
      const [letter] = await admin.dead({});
      assert.deepEqual([letter?.edited, payloads([letter!])], [true, ["still wrong"]]);
      assert.deepEqual(payloads([(await admin.original({ relay: "r", id }))!]), [{ n: 2 }]);
      await admin.edit({ relay: "r", id }, { payload: "right" });
      await admin.requeue({ id });
      consumer.judge = () => PUBLISHED;
      assert.deepEqual(payloads(await consumer.take(3)), ["right", { n: 3 }, { n: 4 }]);
    },
  },
  {
    role,
    name: "are refused while a command waits, and once the letter is not dead",
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      const name = { relay: "r", id };
      await admin.requeue({ id });
      await assert.rejects(admin.edit(name, { payload: "too late" }), { code: "conflict" });
      consumer.judge = () => PUBLISHED;
      assert.deepEqual(payloads(await consumer.take(3)), [{ n: 2 }, { n: 3 }, { n: 4 }]);
      await assert.rejects(admin.edit(name, { payload: "too late" }), { code: "conflict" });
      assert.equal((await admin.dead({ state: "requeued" }))[0]?.edited, false);
      await assert.rejects(admin.edit({ relay: "r", id: "no such id" }, { payload: 1 }), { code: "not_found" });
      await assert.rejects(admin.edit({ relay: "another", id }, { payload: 1 }), { code: "not_found" });
    },
  },
  {
    role,
    name: "are refused for a discarded letter, which stays discarded",
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      await admin.edit({ relay: "r", id }, { payload: "mended" });
      await admin.discard({ id });
      await assert.rejects(admin.edit({ relay: "r", id }, { payload: "too late" }), { code: "conflict" });
      assert.deepEqual(payloads(await consumer.take(2)), [{ n: 3 }, { n: 4 }]);
      await assert.rejects(admin.edit({ relay: "r", id }, { payload: "too late" }), { code: "conflict" });
    },
  },
  {
    role,
    name: "of two people follow each other, and the letter goes out once",
    needs: ["concurrency"],
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const two = [context.store.admin.by({ actor: "anna" }), context.another().admin.by({ actor: "bert" })];
      await Promise.all(two.map((admin, i) => admin.edit({ relay: "r", id }, { payload: `edit ${i}` })));
      await Promise.all(two.map((admin) => admin.requeue({ id })));
      const late = await Promise.allSettled(two.map((admin) => admin.edit({ relay: "r", id }, { payload: "late" })));
      assert.deepEqual(
        late.map(({ status }) => status),
        ["rejected", "rejected"],
      );
      consumer.judge = () => PUBLISHED;
      const [first, ...rest] = payloads(await consumer.take(3));
      assert.ok(first === "edit 0" || first === "edit 1");
      assert.deepEqual(rest, [{ n: 3 }, { n: 4 }]);
      await consumer.session.tend();
      assert.deepEqual(await consumer.drain(), []);
      assert.deepEqual(payloads([(await context.store.admin.original({ relay: "r", id }))!]), [{ n: 2 }]);
      const { changes } = await context.store.admin.changes({});
      assert.deepEqual(
        changes
          .filter(({ action }) => action === "edit")
          .map(({ actor }) => actor)
          .toSorted(),
        ["anna", "bert"],
      );
    },
  },
  {
    role,
    name: "and requeues at the same time deliver one or the other, once and in order",
    needs: ["concurrency"],
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      const racing = [admin.edit({ relay: "r", id }, { payload: "mended" }), context.another().admin.requeue({ id })];
      const [edit] = await Promise.allSettled(racing);
      consumer.judge = () => PUBLISHED;
      const expected = edit?.status === "fulfilled" ? "mended" : { n: 2 };
      assert.deepEqual(payloads(await consumer.take(3)), [expected, { n: 3 }, { n: 4 }]);
    },
  },
  {
    role,
    name: "are delivered again after a rewind",
    needs: ["log"],
    async run(context) {
      const { consumer, id } = await withLetter(context, false);
      const { admin } = context.store;
      await admin.edit({ relay: "r", id }, { payload: "mended", headers: { big: "x".repeat(20_000) } });
      await admin.requeue({ id });
      consumer.judge = () => PUBLISHED;
      for (let i = 0; i < 50 && consumer.published.length < 4; i++) {
        await consumer.session.tend();
        await consumer.drain();
      }
      assert.equal(String(consumer.published.find((one) => one.id === id)?.headers["big"]).length, 20_000);
      await admin.rewind("r", "earliest");
      const again = await consumer.take(4);
      assert.deepEqual(payloads(again), [{ n: 1 }, "mended", { n: 3 }, { n: 4 }]);
      assert.equal(String(again[1]?.headers["big"]).length, 20_000);
      // One that was not requeued goes out with its edit, too.
      await enqueue(context, message(5, { type: "bad", key: "k5" }));
      consumer.judge = ({ type }) => (type === "bad" ? dead(1, false, "poison") : PUBLISHED);
      await untilDead(context, consumer, 1);
      const [letter] = await admin.dead({});
      await admin.edit({ relay: "r", id: letter!.id }, { payload: "mended 5" });
      consumer.judge = () => PUBLISHED;
      await admin.rewind("r", { position: letter!.position });
      assert.deepEqual(payloads(await consumer.take(1)), ["mended 5"]);
      await assert.rejects(admin.edit({ relay: "r", id: letter!.id }, { payload: 1 }), { code: "conflict" });
    },
  },
  {
    role,
    name: "of one relay are none of another",
    needs: ["log"],
    async run(context) {
      const { consumer, id } = await withLetter(context, false);
      const other = await joined(context.store, { relay: "other" });
      other.judge = ({ type }) => (type === "bad" ? dead(1, false, "poison") : PUBLISHED);
      for (let i = 0; i < 50 && (await context.store.admin.dead({})).length < 2; i++) {
        await other.session.tend();
        await other.drain();
      }
      const { admin } = context.store;
      await admin.edit({ relay: "r", id }, { payload: "mended" });
      await admin.requeue({ id });
      consumer.judge = other.judge = () => PUBLISHED;
      const of = async (one: Consumer) => payloads((await one.take(1)).filter(({ id: own }) => own === id));
      assert.deepEqual(await of(consumer), ["mended"]);
      assert.deepEqual(await of(other), [{ n: 2 }]);
    },
  },
  {
    role,
    name: "go with the relay that is dropped",
    needs: ["log"],
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      await admin.edit({ relay: "r", id }, { payload: "mended" });
      await consumer.session.leave();
      await admin.drop("r");
      assert.equal(await admin.original({ relay: "r", id }), null);
      const next = await joined(context.store);
      assert.deepEqual(
        payloads(await next.take(4)),
        range(1, 4).map((n) => ({ n })),
      );
    },
  },
  {
    role,
    name: "are delivered though the log of the message is gone, and go with the letter",
    needs: ["log", "retention"],
    async run(context) {
      const { consumer, id } = await withLetter(context, false);
      const { admin } = context.store;
      const fast = context.withRetention!({ segmentMs: 1, retentionMs: 0 });
      await admin.edit({ relay: "r", id }, { payload: "mended" });
      consumer.judge = () => PUBLISHED;
      await consumer.take(3 - consumer.published.length);
      const isInLog = async () => (await admin.find({ id })).length > 0;
      for (let i = 0; i < 50 && (await isInLog()); i++) {
        await enqueue(context, message("later", { key: "later" }));
        await consumer.take(1);
        await fast.maintenance.run();
      }
      assert.equal(await isInLog(), false);
      assert.equal(await admin.requeue({ id }), 1);
      assert.deepEqual(payloads((await consumer.take(1)).filter((one) => one.id === id)), ["mended"]);
      for (let i = 0; i < 50 && (await admin.original({ relay: "r", id })) !== null; i++) await fast.maintenance.run();
      assert.equal(await admin.original({ relay: "r", id }), null);
      assert.deepEqual(await admin.dead({ state: "requeued" }), []);
    },
  },
  {
    role,
    name: "refuse whatever would make another message of it, or none at all",
    async run(context) {
      const { consumer, id } = await withLetter(context);
      const { admin } = context.store;
      const loop: Record<string, unknown> = {};
      loop["self"] = loop;
      const wrong: [object, { code: string; field: string }][] = [
        [{}, { code: "invalid_option", field: "payload" }],
        [
          { payload: 1, body: "1" },
          { code: "invalid_option", field: "body" },
        ],
        [{ payload: undefined }, { code: "invalid_message", field: "payload" }],
        [{ payload: Number.NaN }, { code: "invalid_message", field: "payload" }],
        [{ payload: loop }, { code: "invalid_message", field: "payload" }],
        [{ payload: "x".repeat(1024 * 1024) }, { code: "payload_too_large", field: "payload" }],
        [{ body: "{ not json" }, { code: "invalid_message", field: "body" }],
        [{ body: new Uint8Array([255]) }, { code: "invalid_message", field: "body" }],
        [{ body: 5 }, { code: "invalid_message", field: "body" }],
        [
          { body: "x", headers: { contentType: 5 } },
          { code: "invalid_message", field: "headers.contentType" },
        ],
        [{ headers: "none" }, { code: "invalid_message", field: "headers" }],
        [{ headers: new Map() }, { code: "invalid_message", field: "headers" }],
        [{ headers: { "txbox-id": "another" } }, { code: "invalid_message", field: "headers.txbox-id" }],
        [{ headers: { correlationId: "other" } }, { code: "invalid_message", field: "headers.correlationId" }],
        [{ headers: { causationId: "other" } }, { code: "invalid_message", field: "headers.causationId" }],
        [{ headers: { big: "x".repeat(70_000) } }, { code: "invalid_message", field: "headers" }],
        [
          { payload: 1, id: "another" },
          { code: "invalid_option", field: "id" },
        ],
        [
          { payload: 1, key: "another" },
          { code: "invalid_option", field: "key" },
        ],
        [
          { payload: 1, stream: "another" },
          { code: "invalid_option", field: "stream" },
        ],
        [
          { payload: 1, type: "another" },
          { code: "invalid_option", field: "type" },
        ],
        [
          { payload: 1, position: 1n },
          { code: "invalid_option", field: "position" },
        ],
        [{ payloads: 1 }, { code: "invalid_option", field: "payloads" }],
      ];
      for (const [change, refusal] of wrong)
        await assert.rejects(admin.edit({ relay: "r", id }, change), refusal, JSON.stringify(refusal));
      for (const name of [{ relay: "r" }, { id }, { relay: "r", id: 5 }, { relay: "r", id, stream: "s" }])
        await assert.rejects(admin.edit(name as never, { payload: 1 }), { code: "invalid_option" });
      assert.equal((await admin.dead({}))[0]?.edited, false);
      assert.deepEqual((await admin.changes({})).changes, []);
      await admin.requeue({ id });
      consumer.judge = () => PUBLISHED;
      assert.deepEqual(payloads(await consumer.take(3)), [{ n: 2 }, { n: 3 }, { n: 4 }]);
    },
  },
];
