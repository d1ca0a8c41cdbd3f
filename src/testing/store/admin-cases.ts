import assert from "node:assert/strict";
import type { Admin, DeadLetter, DeadPlace } from "../../core/contracts.ts";
import { dead, joined, PUBLISHED } from "./consumer.ts";
import { enqueue, message, payloads, range } from "./enqueuing.ts";
import type { StoreCase, StoreContext } from "./store-context.ts";

const role = "admin";

/** A relay "r" that has left this many dead letters, each of a key of its own. */
async function withDead(context: StoreContext, count: number): Promise<void> {
  const consumer = await joined(context.store, {}, { judge: ({ type }) => (type === "bad" ? dead() : PUBLISHED) });
  await enqueue(context, ...range(1, count).map((n) => message(n, { type: "bad", key: `k${n}` })));
  await consumer.drain();
  await consumer.session.leave();
}

/** Values that are no text, among them values that one database or another reads as a condition. */
const NO_TEXT: readonly unknown[] = [
  undefined,
  null,
  {},
  { $gt: "" },
  { $ne: null },
  [],
  ["r"],
  7,
  7n,
  true,
  Symbol("r"),
  () => "r",
  new String("r"),
  "",
  "x".repeat(100_000),
  "r\0",
  "r\uD800",
];
const NO_OBJECT: readonly unknown[] = [undefined, null, 7, "r", true, Symbol("r"), [], [{ id: "r" }]];
const NO_POSITION: readonly unknown[] = [undefined, null, 7, "7", {}, { $gt: 0 }, [], Symbol("7"), -1n, 2n ** 63n];
const NO_LIMIT: readonly unknown[] = [undefined, null, 0, -1, 1.5, Number.NaN, Infinity, "5", 5n, {}, [5]];
const NO_STATE: readonly unknown[] = [undefined, null, "DEAD", "dead\0", { $ne: "" }, ["dead"], 7];
const NO_PLACE: readonly unknown[] = [
  undefined,
  null,
  "r",
  7,
  {},
  { position: 1n },
  { position: 1n, relay: { $gt: "" } },
];
const NO_TARGET: readonly unknown[] = [
  undefined,
  null,
  7,
  7n,
  "NOW",
  "",
  [],
  {},
  { $gt: "" },
  { position: 7 },
  { position: { $gt: 0 } },
  { position: undefined },
  { time: 0 },
  { time: "2026-01-31" },
  { time: new Date(Number.NaN) },
  { time: new Date(8.64e15) },
  { position: 1n, time: new Date() },
];

type Call = (value: never, onProgress?: never) => Promise<unknown>;
type Refusal = [what: string, call: Call, values: readonly unknown[]];

const queriesOf = (admin: Admin): Call[] => [(query) => admin.find(query), (query) => admin.dead(query)];
const commandsOf = (admin: Admin): Call[] => [
  (choice, onProgress) => admin.requeue(choice, onProgress),
  (choice, onProgress) => admin.discard(choice, onProgress),
];

/** Every argument of every call, with what it must refuse. */
function refusals(admin: Admin): Refusal[] {
  const of = (call: Call, field: string, values: readonly unknown[]): Refusal => [
    field,
    (value) => call({ [field]: value } as never),
    values,
  ];
  const [find, list] = queriesOf(admin) as [Call, Call];
  const commands = commandsOf(admin);
  const all = (more: object) => ({ all: true, ...more }) as never;
  const texts = ["relay", "id", "stream", "key"];
  return [
    ...[find, list, ...commands].map((call): Refusal => ["the whole query", call, NO_OBJECT]),
    ...[...texts, "aggregateType", "aggregateId", "correlationId"].map((field) => of(find, field, NO_TEXT)),
    ...[list, ...commands].flatMap((call) => [
      ...[...texts, "type"].map((field) => of(call, field, NO_TEXT)),
      of(call, "position", NO_POSITION),
    ]),
    of(find, "limit", [...NO_LIMIT, 10_001]),
    of(list, "limit", [...NO_LIMIT, 10_001]),
    of(list, "state", NO_STATE),
    of(list, "after", NO_PLACE),
    ...commands.flatMap((call): Refusal[] => [
      of(call, "all", [undefined, null, false, 1, "true", {}]),
      ["limit", (limit) => call(all({ limit })), NO_LIMIT],
      ["onProgress", (onProgress) => call(all({}), onProgress), [null, {}, 7, "f"]],
    ]),
    ["relay", (relay) => admin.pause(relay), NO_TEXT],
    ["relay", (relay) => admin.resume(relay), NO_TEXT],
    ["relay", (relay) => admin.drop(relay), NO_TEXT],
    ["relay", (relay) => admin.rewind(relay, "earliest"), NO_TEXT],
    ["target", (target) => admin.rewind("r", target), NO_TARGET],
  ];
}

const BAD_INPUT = { code: "invalid_option" };

/** Page by page; the first answer that is empty ends it. */
async function allPages(admin: Admin, query: object, limit: number): Promise<DeadLetter[]> {
  const letters: DeadLetter[] = [];
  let after: DeadPlace | undefined;
  for (let page = 0; page < 100; page++) {
    const found = await admin.dead({ ...query, limit, ...(after === undefined ? {} : { after }) });
    if (found.length === 0) break;
    assert.ok(found.length <= limit);
    letters.push(...found);
    after = found.at(-1);
  }
  return letters;
}

/** Arguments come from requests, scripts and typing errors: none of them may mean more than it says. */
export const adminCases: readonly StoreCase[] = [
  {
    role,
    name: "refuses arguments of the wrong type, and changes nothing",
    async run(context) {
      await withDead(context, 3);
      const { admin } = context.store;
      const before = await admin.dead({});
      for (const [what, call, values] of refusals(admin)) {
        for (const value of values) {
          const shown = typeof value === "string" ? JSON.stringify(value.slice(0, 20)) : typeof value;
          await assert.rejects(() => call(value as never), BAD_INPUT, `${what} took ${shown}`);
        }
      }
      assert.deepEqual(await admin.dead({}), before);
      const [relay, ...others] = await admin.relays();
      assert.deepEqual([relay?.name, relay?.paused, relay?.dead, others.length], ["r", false, 3, 0]);
    },
  },
  {
    role,
    name: "refuses fields it does not know, and names the one that was meant",
    async run(context) {
      await withDead(context, 2);
      const { admin } = context.store;
      const slip = { ...BAD_INPUT, field: "idd", message: /"id"/ };
      for (const call of [...queriesOf(admin), ...commandsOf(admin)]) {
        await assert.rejects(() => call({ idd: "x" } as never), slip);
        await assert.rejects(() => call({ id: "x", $where: "true" } as never), BAD_INPUT);
        await assert.rejects(() => call({ id: "x", [Symbol("y")]: 1 } as never), BAD_INPUT);
      }
      await assert.rejects(() => admin.requeue({ state: "dead" } as never), BAD_INPUT);
      assert.deepEqual(
        (await admin.dead({})).map(({ command }) => command),
        [null, null],
      );
    },
  },
  {
    role,
    name: "takes a command for all dead letters only when it says so",
    async run(context) {
      await withDead(context, 3);
      const { admin } = context.store;
      for (const call of commandsOf(admin)) {
        await assert.rejects(() => call({} as never), { ...BAD_INPUT, message: /all: true/ });
        await assert.rejects(() => call({ limit: 2 } as never), { ...BAD_INPUT, message: /all: true/ });
        await assert.rejects(() => call({ all: true, key: "k1" } as never), BAD_INPUT);
      }
      assert.ok((await admin.dead({})).every(({ command }) => command === null));
      assert.equal(await admin.requeue({ all: true, relay: "another" }), 0);
      assert.equal(await admin.requeue({ all: true, limit: 2 }), 2);
      assert.deepEqual(
        (await admin.dead({})).map(({ command }) => command),
        ["requeue", "requeue", null],
      );
      assert.equal(await admin.discard({ all: true }), 3);
      assert.ok((await admin.dead({})).every(({ command }) => command === "discard"));
    },
  },
  {
    role,
    name: "pages through dead letters in order, each once",
    async run(context) {
      await withDead(context, 25);
      const { admin } = context.store;
      const whole = await admin.dead({ limit: 1000 });
      assert.equal(whole.length, 25);
      for (const query of [{}, { relay: "r" }, { stream: "s", type: "bad" }]) {
        const letters = await allPages(admin, query, 4);
        assert.deepEqual(
          letters.map(({ id }) => id),
          whole.map(({ id }) => id),
        );
      }
      assert.deepEqual(await allPages(admin, { relay: "another" }, 4), []);
      assert.deepEqual(payloads(await admin.dead({ key: "k7" })), [7]);
    },
  },
  {
    role,
    name: "requeues many at once, part by part, and says how far it is",
    async run(context) {
      const count = 1200;
      const consumer = await joined(
        context.store,
        { batch: { messages: 1000, bytes: 10_000_000 } },
        { judge: () => dead() },
      );
      for (let from = 1; from <= count; from += 1000) {
        await enqueue(context, ...range(from, Math.min(from + 999, count)).map((n) => message(n, { key: `k${n}` })));
      }
      while ((await consumer.drain()).length > 0);
      await consumer.session.leave();
      const { admin } = context.store;
      const heard: number[] = [];
      assert.equal(await admin.requeue({ relay: "r" }, (soFar) => void heard.push(soFar)), count);
      assert.ok(
        heard.every((n, i) => n > (heard[i - 1] ?? 0)),
        heard.join(", "),
      );
      assert.equal(heard.at(-1), count);
      assert.equal(await admin.discard({ relay: "r", limit: 1100 }), 1100);
      const letters = await allPages(admin, {}, 1000);
      assert.deepEqual(
        [letters.filter(({ command }) => command === "discard").length, letters.at(-1)?.command],
        [1100, "requeue"],
      );
    },
  },
];
