import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Admin, MessageInfo, MessageSearch, MessageStatus } from "../../core/contracts.ts";
import { dead, joined, nextClaim, PUBLISHED, retry } from "./consumer.ts";
import { enqueue, message, numbered, payloads, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "search";
const BAD_INPUT = { code: "invalid_option" };
const HOUR_MS = 3_600_000;

/** All pages, one after the other; how far each looked back only ever grows. */
async function allPages(admin: Admin, query: MessageSearch, limit: number): Promise<MessageInfo[]> {
  const found: MessageInfo[] = [];
  let after: string | undefined;
  let reached = Number.POSITIVE_INFINITY;
  for (let page = 0; page < 200; page++) {
    const { messages, next, lookedBackTo } = await admin.search({
      ...query,
      limit,
      ...(after === undefined ? {} : { after }),
    });
    found.push(...messages);
    assert.ok(new Set(messages.map(({ id }) => id)).size <= limit, `${messages.length} messages on a page of ${limit}`);
    if (next === null) {
      assert.equal(lookedBackTo, null);
      return found;
    }
    assert.ok(lookedBackTo === null || lookedBackTo.getTime() <= reached, "a page looked back less far than the last");
    reached = lookedBackTo?.getTime() ?? reached;
    after = next;
  }
  return assert.fail("the pages never end");
}

const search = async ({ store }: StoreContext, query: MessageSearch): Promise<unknown[]> =>
  payloads((await store.admin.search(query)).messages);

/** One message of every status, by its payload. */
async function everyStatus(context: StoreContext): Promise<Map<MessageStatus, string>> {
  const consumer = await joined(context.store);
  consumer.judge = ({ type }, n) => (type === "bad" ? dead(3) : type === "shaky" ? retry(n + 1, HOUR_MS) : PUBLISHED);
  const [published, died, retrying, parked] = await enqueue(
    context,
    message("published", { key: "a" }),
    message("dead", { key: "b", type: "bad" }),
    message("retrying", { key: "c", type: "shaky" }),
    message("parked", { key: "c" }),
  );
  await consumer.drain();
  const [scheduled] = await enqueue(
    context,
    message("scheduled", { key: "d", deliverAt: new Date(Date.now() + HOUR_MS) }),
  );
  const [processing] = await enqueue(context, message("processing", { key: "e" }));
  assert.ok((await nextClaim(consumer.session)) !== undefined);
  const ids = { published, dead: died, retrying, pending: parked, scheduled, processing };
  return new Map(Object.entries(ids).map(([status, sent]) => [status as MessageStatus, sent?.id ?? ""]));
}

/** What people look for, and how far they looked. */
export const searchCases: readonly StoreCase[] = [
  {
    role,
    name: "finds by id, key, aggregate and correlation, the newest first",
    needs: ["promptProgress"],
    async run(context) {
      const sent = await enqueue(
        context,
        message(1, { key: "a", stream: "x" }),
        { stream: "x", type: "t", payload: 2, aggregateType: "order", aggregateId: "7" },
        { stream: "y", type: "t", payload: 3, aggregateType: "invoice", aggregateId: "7" },
        message(4, { key: "b", headers: { correlationId: "chain" } }),
        message(5, { key: "b", headers: { correlationId: "chain" } }),
        message(6, { key: "b", type: "other" }),
      );
      await joined(context.store);
      // No relay has read them yet, but one will.
      assert.deepEqual(await search(context, { relay: "r" }), [6, 5, 4, 3, 2, 1]);
      assert.deepEqual(await search(context, { relay: "r", status: "pending", stream: "y" }), [3]);
      assert.deepEqual(await search(context, { id: sent[1]?.id ?? "" }), [2]);
      assert.deepEqual(await search(context, { key: "a" }), [1]);
      assert.deepEqual(await search(context, { key: "b" }), [6, 5, 4]);
      assert.deepEqual(await search(context, { key: "b", type: "other" }), [6]);
      assert.deepEqual(await search(context, { key: "b", limit: 2 }), [6, 5]);
      assert.deepEqual(await search(context, { aggregateId: "7" }), [3, 2]);
      assert.deepEqual(await search(context, { aggregateType: "order", aggregateId: "7" }), [2]);
      assert.deepEqual(await search(context, { correlationId: "chain" }), [5, 4]);
      // A message without a correlation of its own is the first of its chain.
      assert.deepEqual(await search(context, { correlationId: sent[0]?.id ?? "" }), [1]);
      assert.deepEqual(await search(context, { stream: "x" }), [2, 1]);
      assert.deepEqual(await search(context, { type: "other" }), [6]);
      assert.deepEqual(await search(context, {}), [6, 5, 4, 3, 2, 1]);
      for (const none of [{ id: "none" }, { key: "none" }, { stream: "none" }, { type: "none" }, { relay: "none" }]) {
        assert.deepEqual(await context.store.admin.search(none), { messages: [], next: null, lookedBackTo: null });
      }
    },
  },
  {
    role,
    name: "gives every message once over all pages, newest first, and knows which page is the last",
    async run(context) {
      const { admin } = context.store;
      // Of one transaction, of many, with and without a key.
      await enqueue(context, ...numbered(1, 12, { headers: { correlationId: "c" } }));
      for (const n of range(13, 18)) await enqueue(context, message(n, { headers: { correlationId: "c" } }));
      const keyless = range(19, 25).map((n) => ({
        stream: "s",
        type: "t",
        payload: n,
        headers: { correlationId: "c" },
      }));
      await enqueue(context, ...keyless);
      const consumer = await joined(context.store);
      await consumer.drain();
      const whole = (await admin.search({ limit: 1000 })).messages;
      assert.equal(whole.length, 25);
      const ids = whole.map(({ id }) => id);
      assert.deepEqual(payloads(whole.slice(-18)), range(1, 18).toReversed());
      const queries: MessageSearch[] = [
        {},
        { stream: "s" },
        { correlationId: "c" },
        { type: "t", relay: "r" },
        { status: "published" },
        { since: new Date(Date.now() - HOUR_MS), until: new Date(Date.now() + HOUR_MS) },
      ];
      for (const query of queries) {
        for (const limit of [1, 4, 25, 1000]) {
          const found = await allPages(admin, query, limit);
          assert.deepEqual(
            found.map(({ id }) => id),
            ids,
            `${JSON.stringify(query)} by ${limit}`,
          );
        }
      }
      assert.deepEqual(payloads(await allPages(admin, { key: "k" }, 7)), range(1, 18).toReversed());
      // A page that is just full is the last when nothing follows.
      assert.equal((await admin.search({ limit: 25 })).next, null);
      assert.notEqual((await admin.search({ limit: 24 })).next, null);
    },
  },
  {
    role,
    name: "finds messages by what became of them",
    needs: ["promptProgress"],
    async run(context) {
      const ids = await everyStatus(context);
      const { admin } = context.store;
      // What came by a stream of the database is in hand, and looks as if it were pending.
      const [inHand] = await admin.find({ id: ids.get("processing") ?? "" });
      const shown: MessageStatus | undefined = inHand?.status;
      assert.ok(shown === "processing" || shown === "pending", shown);
      for (const [status, id] of ids) {
        const { messages } = await admin.search({ status });
        const wanted: string[] = [...ids]
          .filter(([of]) => (of === "processing" ? shown : of) === status)
          .map(([, one]) => one);
        assert.deepEqual(new Set(messages.map((found) => found.id)), new Set(wanted), status);
        assert.ok(messages.every((found) => found.status === status));
        assert.deepEqual((await admin.search({ status, type: "none" })).messages, []);
        const [found] = await admin.find({ id });
        const { messages: ofKey } = await admin.search({ status: found?.status ?? status, key: found?.key ?? "" });
        assert.ok(
          ofKey.some((one) => one.id === id),
          status,
        );
      }
      const all = (await admin.search({})).messages;
      assert.deepEqual(new Set(all.map(({ id }) => id)), new Set(ids.values()));
      assert.equal(all.length, ids.size);
      const [scheduled] = (await admin.search({ key: "d" })).messages;
      assert.deepEqual([scheduled?.status, scheduled?.position], ["scheduled", null]);
      assert.ok(scheduled?.deliverAt !== null && (scheduled?.deliverAt.getTime() ?? 0) > Date.now());
    },
  },
  {
    role,
    name: "finds what was enqueued within a time",
    async run(context) {
      const { admin } = context.store;
      await enqueue(context, ...numbered(1, 2));
      await sleep(30);
      const [third] = await enqueue(context, message(3));
      await sleep(30);
      await enqueue(context, ...numbered(4, 5));
      await joined(context.store);
      const [{ createdAt }] = (await admin.search({ id: third?.id ?? "" })).messages as [MessageInfo];
      const [at, later] = [createdAt, new Date(createdAt.getTime() + 1)];
      assert.deepEqual(await search(context, { since: at }), [5, 4, 3]);
      assert.deepEqual(await search(context, { since: later }), [5, 4]);
      assert.deepEqual(await search(context, { until: later }), [3, 2, 1]);
      assert.deepEqual(await search(context, { until: at }), [2, 1]);
      assert.deepEqual(await search(context, { since: at, until: later }), [3]);
      assert.deepEqual(await search(context, { key: "k", since: at, until: later, stream: "s" }), [3]);
      const farOff = [new Date("0001-01-01T00:00:00Z"), new Date("9999-12-31T23:59:59Z")] as const;
      assert.deepEqual(await search(context, { since: farOff[0], until: farOff[1] }), [5, 4, 3, 2, 1]);
      for (const none of [{ since: farOff[1] }, { until: farOff[0] }])
        assert.deepEqual(await admin.search(none), { messages: [], next: null, lookedBackTo: null });
    },
  },
  {
    role,
    name: "shows every failed attempt that is known, with its time",
    async run(context) {
      const { admin } = context.store;
      const consumer = await joined(context.store);
      consumer.judge = ({ type }, n) =>
        type === "bad" && n === 2 ? dead(3, false, "error 3") : retry(n + 1, n === 2 ? HOUR_MS : 0, `error ${n + 1}`);
      const sent = await enqueue(context, message(1, { type: "bad", key: "a" }), message(2, { key: "b" }));
      for (let round = 0; round < 50; round++) {
        await consumer.session.tend();
        await consumer.drain();
        const statuses = (await admin.search({})).messages.map(({ attempts }) => attempts);
        if (statuses.every((attempts) => attempts === 3)) break;
        await sleep(10);
      }
      for (const { id } of sent) {
        const [found] = (await admin.search({ id })).messages;
        assert.deepEqual(
          found?.errors.map(({ error }) => error),
          ["error 1", "error 2", "error 3"],
          `${found?.status}`,
        );
        assert.ok(found?.errors.every(({ at }) => Math.abs(Date.parse(at) - Date.now()) < 120_000));
        assert.deepEqual((await admin.find({ id }))[0]?.errors, found?.errors);
      }
      // A list leaves out what may be long, wherever it is from, and nothing else.
      const ids = sent.map(({ id }) => id);
      const lists = [
        async (contents: boolean) => (await admin.search({ contents })).messages,
        async (contents: boolean) => (await admin.search({ status: "dead", contents })).messages,
        async (contents: boolean) => (await admin.search({ key: "b", contents })).messages,
        (contents: boolean) => admin.find({ ids, contents }),
        (contents: boolean) => admin.find({ key: "b", contents }),
        (contents: boolean) => admin.waiting({ relay: "r", stream: "s", key: "b", contents }),
        (contents: boolean) => admin.dead({ contents }),
      ];
      for (const list of lists) {
        const whole = await list(true);
        assert.ok(whole.length > 0 && whole.every(({ body }) => body.length > 0));
        const short = whole.map((one) => {
          const { correlationId } = one.headers;
          return { ...one, body: "", headers: { correlationId }, errors: [] };
        });
        const listed = (await list(false)).map((one) => ({ ...one, headers: { ...one.headers } }));
        assert.deepEqual(listed, short);
      }
      const [died] = (await admin.search({ status: "dead" })).messages;
      assert.deepEqual([died?.id, died?.errors.length, died?.lastError], [sent[0]?.id, 3, "error 3"]);
      const [fresh] = await enqueue(context, message(3));
      assert.deepEqual((await admin.search({ id: fresh?.id ?? "" })).messages[0]?.errors, []);
    },
  },
  {
    role,
    name: "shows a message with all of its relays on one page",
    needs: ["log", "promptProgress"],
    async run(context) {
      const { admin } = context.store;
      const one = await joined(context.store, { relay: "one" });
      await joined(context.store, { relay: "two" });
      await enqueue(context, ...numbered(1, 7));
      await one.drain();
      const found = await allPages(admin, {}, 2);
      assert.deepEqual(
        found.map(({ relay }) => relay),
        range(1, 7).flatMap(() => ["one", "two"]),
      );
      assert.deepEqual(
        payloads(found),
        range(1, 7)
          .toReversed()
          .flatMap((n) => [n, n]),
      );
      assert.equal((await allPages(admin, { relay: "two", status: "pending" }, 3)).length, 7);
      assert.deepEqual(await allPages(admin, { relay: "two", status: "published" }, 3), []);
      assert.equal((await allPages(admin, { status: "published" }, 3)).length, 7);
    },
  },
  {
    role,
    name: "finds dead letters of every state that is dead, and those that were requeued as what they are now",
    async run(context) {
      const { admin } = context.store;
      const consumer = await joined(context.store, {}, { judge: () => dead() });
      const sent = await enqueue(context, ...range(1, 6).map((n) => message(n, { key: `k${n}` })));
      await consumer.drain();
      await admin.discard({ id: sent[0]?.id ?? "" });
      await admin.requeue({ id: sent[1]?.id ?? "" });
      await consumer.session.tend();
      consumer.judge = () => PUBLISHED;
      await consumer.take(1);
      assert.deepEqual(payloads(await allPages(admin, { status: "dead" }, 2)), [6, 5, 4, 3, 1]);
      assert.deepEqual(payloads(await allPages(admin, { status: "dead", relay: "r" }, 2)), [6, 5, 4, 3, 1]);
      assert.deepEqual(payloads(await allPages(admin, { status: "dead", key: "k3" }, 2)), [3]);
      assert.deepEqual(await allPages(admin, { status: "dead", relay: "other" }, 2), []);
      assert.deepEqual(payloads(await allPages(admin, { status: "published" }, 2)), [2]);
    },
  },
  {
    role,
    name: "takes hostile text for nothing but text",
    async run(context) {
      const { admin } = context.store;
      await joined(context.store);
      const texts = [
        `'; drop table message; --`,
        `"x"`,
        "\\",
        "%",
        "_",
        "$1",
        "{$gt:''}",
        "k\u202Ek",
        "null",
        "🧾",
        "a,b",
      ];
      await enqueue(
        context,
        ...texts.map((text) =>
          message(text, { key: text, type: text, stream: text, aggregateType: text, aggregateId: text }),
        ),
      );
      for (const text of texts) {
        for (const field of ["key", "type", "stream", "aggregateType", "aggregateId"] as const)
          assert.deepEqual(await search(context, { [field]: text }), [text], `${field} ${text}`);
        assert.deepEqual((await admin.search({ id: text, relay: text })).messages, []);
      }
    },
  },
  {
    role,
    name: "refuses absurd searches, and a place of another one",
    async run(context) {
      const { admin } = context.store;
      await enqueue(context, ...numbered(1, 5));
      const { next } = await admin.search({ key: "k", limit: 2 });
      assert.ok(next !== null);
      const other = { ...BAD_INPUT, field: "after" };
      assert.deepEqual(payloads((await admin.search({ key: "k", limit: 500, after: next })).messages), [3, 2, 1]);
      for (const query of [{}, { key: "other" }, { key: "k", type: "t" }, { stream: "k" }] as MessageSearch[])
        await assert.rejects(async () => admin.search({ ...query, after: next }), other);
      const [name] = next.split(".");
      const forged = [["log", "x"], ["log", -1], ["nowhere", "1"], ["log"], [], 7, null, ["scheduled", "\0"]];
      const places = forged.map((place) => `${name}.${Buffer.from(JSON.stringify(place)).toString("base64url")}`);
      for (const after of ["1", "log", `${name}.`, `${name}.!`, `${name}.e30`, ...places])
        await assert.rejects(async () => admin.search({ key: "k", after }), other, after);
      const absurd = [
        undefined,
        null,
        [],
        "k",
        { keys: "k" },
        { key: "" },
        { key: { $gt: "" } },
        { key: "k".repeat(5000) },
        { key: "k\0" },
        { key: "\uD800" },
        { status: "lost" },
        { status: ["dead"] },
        { since: "2026-01-01" },
        { since: new Date(Number.NaN) },
        { until: 5 },
        { since: new Date(2), until: new Date(1) },
        { since: new Date(1), until: new Date(1) },
        { limit: 0 },
        { limit: 1001 },
        { limit: 1.5 },
        { limit: "5" },
        { after: "" },
        { after: 5 },
        { id: undefined },
      ] as never[];
      for (const query of absurd) await assert.rejects(async () => admin.search(query), BAD_INPUT);
    },
  },
];
