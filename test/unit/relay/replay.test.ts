import { expect, it } from "vitest";
import type { Message } from "../../../src/core/message.ts";
import { derivedId, replay } from "../../../src/relay/replay.ts";
import type { ReplayOptions } from "../../../src/relay/replay-options.ts";
import { createMemoryPublisher } from "../../../src/testing/index.ts";

function message(n: number, more: Partial<Message> = {}): Message {
  return {
    id: `id-${n}`,
    position: BigInt(n),
    stream: "orders",
    type: "created",
    key: "k",
    aggregateType: "order",
    aggregateId: "7",
    headers: { correlationId: "chain" },
    createdAt: new Date(1_700_000_000_000 + n * 1000),
    body: `{"n":${n}}`,
    ...more,
  };
}

const many = (count: number, more: Partial<Message> = {}) =>
  Array.from({ length: count }, (_, i) => message(i + 1, more));

function from(messages: readonly Message[]): ReplayOptions["from"] {
  return async function* () {
    yield* messages;
  };
}

const ids = (messages: readonly Message[]) => messages.map(({ id }) => id);

it("sends in order, marked as replays, with the ids and bodies that they had", async () => {
  const publisher = createMemoryPublisher();
  const before = Date.now();
  const report = await replay({ from: from(many(250)), publisher, rate: 100_000 });
  expect(report).toMatchObject({ found: 250, sent: 250, streams: { orders: 250 }, position: 250n, stopped: false });
  expect(ids(publisher.published)).toEqual(ids(many(250)));
  const [first] = publisher.published;
  expect(first).toMatchObject({ body: '{"n":1}', position: 1n, headers: { correlationId: "chain", replayOf: "id-1" } });
  expect(Date.parse(String(first?.headers["replayedAt"]))).toBeGreaterThanOrEqual(before);
});

it("sends what matches and nothing that an inbox has stored", async () => {
  const publisher = createMemoryPublisher();
  const all = [
    message(1),
    message(2, { stream: "inbox.payments" }),
    message(3, { type: "paid" }),
    message(4, { key: null, aggregateId: null }),
    message(5, { headers: { correlationId: "other" } }),
  ];
  const sent = async (filter: ReplayOptions["filter"]) => {
    const { found } = await replay({ from: from(all), publisher, dryRun: true, filter: filter! });
    return found;
  };
  expect(await sent({})).toBe(4);
  expect(await sent({ streams: ["inbox.payments"] })).toBe(1);
  expect(await sent({ type: "paid" })).toBe(1);
  expect(await sent({ key: "k" })).toBe(3);
  expect(await sent({ aggregateType: "order", aggregateId: "7" })).toBe(3);
  expect(await sent({ correlationId: "other" })).toBe(1);
  expect(await sent({ id: "id-3" })).toBe(1);
  expect(await sent({ after: 3n })).toBe(2);
  expect(await sent({ since: new Date(1_700_000_003_000), until: new Date(1_700_000_005_000) })).toBe(2);
  expect(publisher.published).toEqual([]);
});

it("keeps to its rate", async () => {
  const publisher = createMemoryPublisher();
  const startedAt = performance.now();
  await replay({ from: from(many(30)), publisher, rate: 50 });
  const ms = performance.now() - startedAt;
  expect(publisher.published).toHaveLength(30);
  // The first five go at once.
  expect(ms).toBeGreaterThan(450);
});

it("gives new ids that are the same each time", async () => {
  const [one, two] = [createMemoryPublisher(), createMemoryPublisher()];
  for (const publisher of [one, two]) await replay({ from: from(many(20)), publisher, rate: 10_000, newIds: true });
  expect(ids(one.published)).toEqual(ids(two.published));
  expect(new Set([...ids(one.published), ...ids(many(20))]).size).toBe(40);
  expect(one.published[4]?.headers["replayOf"]).toBe("id-5");
  expect(derivedId("id-5")).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

it("refuses what is a replay already, before it sends anything, unless told", async () => {
  const publisher = createMemoryPublisher();
  const all = [message(1), message(2, { headers: { replayOf: "x" } })];
  await expect(replay({ from: from(all), publisher })).rejects.toThrow(
    "1 of 2 messages are replays themselves, the first one is id-2",
  );
  expect(publisher.published).toEqual([]);
  await replay({ from: from(all), publisher, includeReplays: true });
  expect(publisher.published).toHaveLength(2);
});

it("tries again what fails, and sends nothing of the key meanwhile", async () => {
  const publisher = createMemoryPublisher();
  let left = 3;
  publisher.fail(({ id }) => id === "id-2" && left-- > 0);
  const report = await replay({ from: from(many(5)), publisher, rate: 1000 });
  expect(ids(publisher.published)).toEqual(ids(many(5)));
  expect(report.sent).toBe(5);
});

it("gives a publisher that keeps no order one message of a key at a time", async () => {
  const publisher = createMemoryPublisher({ keepsKeyOrder: false });
  let left = 2;
  publisher.fail(({ id }) => id === "id-3" && left-- > 0);
  await replay({ from: from(many(6)), publisher, rate: 100_000 });
  expect(ids(publisher.published)).toEqual(ids(many(6)));
  expect(Math.max(...publisher.batches)).toBe(1);
});

it("says where to go on when the target stays out, and goes on there", async () => {
  const publisher = createMemoryPublisher();
  publisher.fail(({ id }) => id === "id-7");
  const options = { from: from(many(10)), publisher, rate: 50, patienceMs: 300 };
  await expect(replay(options)).rejects.toThrow(/did not take message id-7: .*6 of 10 messages were sent.*--after 6/);
  publisher.heal();
  const report = await replay({ ...options, filter: { after: 6n } });
  expect(report.found).toBe(4);
  expect(ids(publisher.published)).toEqual(ids(many(10)));
});

it("goes on without what can never work, and lists it", async () => {
  const publisher = createMemoryPublisher();
  publisher.reject(({ id }) => id === "id-2");
  const report = await replay({ from: from(many(3)), publisher, newIds: true, filter: { after: 0n } }).catch(
    (e: unknown) => e,
  );
  expect(report).toMatchObject({ sent: 3, rejected: { count: 0 } });
  publisher.reject(({ headers }) => headers["replayOf"] === "id-2");
  expect(await replay({ from: from(many(3)), publisher, newIds: true })).toMatchObject({
    sent: 2,
    rejected: { count: 1, first: [{ id: "id-2" }] },
  });
});

it("stops when told, after what is on its way", async () => {
  const publisher = createMemoryPublisher();
  const stop = new AbortController();
  const onProgress = ({ sent }: { sent: number }) => sent >= 20 && stop.abort();
  const report = await replay({
    from: from(many(100)),
    publisher,
    rate: 100,
    signal: stop.signal,
    onProgress: (p) => void onProgress(p),
  });
  expect(report).toMatchObject({ stopped: true, found: 100, sent: 20, position: 20n });
  expect(publisher.published).toHaveLength(20);
});

it("refuses options that it does not know, and messages out of order", async () => {
  const publisher = createMemoryPublisher();
  await expect(replay({ from: from([]), publisher, rates: 5 } as never)).rejects.toThrow('Did you mean "rate"?');
  await expect(replay({ from: from([]), publisher, filter: { stream: "a" } } as never)).rejects.toThrow(
    'Did you mean "streams"?',
  );
  await expect(replay({ from: "file", publisher } as never)).rejects.toMatchObject({
    code: "invalid_option",
    field: "from",
  });
  await expect(replay({ from: from([]), publisher, rate: 0 })).rejects.toMatchObject({ field: "rate" });
  await expect(replay({ from: from([message(2), message(1)]), publisher })).rejects.toThrow("comes after a later one");
});

it.each<[string, object]>([
  ["filter.streams", { filter: { streams: "orders" } }],
  ["filter.streams", { filter: { streams: [] } }],
  ["filter.streams", { filter: { streams: ["orders", 5] } }],
  ["filter.type", { filter: { type: 5 } }],
  ["filter.key", { filter: { key: "" } }],
  ["filter.id", { filter: { id: undefined } }],
  ["filter.since", { filter: { since: "2026-01-01" } }],
  ["filter.until", { filter: { until: new Date(Number.NaN) } }],
  ["filter.after", { filter: { after: "5" } }],
  ["filter.after", { filter: { after: -1n } }],
  ["from", { from: [] }],
  ["from", { from: [""] }],
  ["from", { from: [1] }],
  ["dryRun", { dryRun: "yes" }],
  ["newIds", { newIds: 1 }],
  ["includeReplays", { includeReplays: null }],
  ["onProgress", { onProgress: "log" }],
  ["signal", { signal: "stop" }],
])("refuses a %s that it does not understand, and sends nothing: %o", async (field, wrong) => {
  const publisher = createMemoryPublisher();
  const told = replay({ from: from(many(3)), publisher, ...wrong });
  await expect(told).rejects.toMatchObject({ code: "invalid_option", field, fix: expect.stringMatching(/\w{3}/) });
  expect(publisher.published).toEqual([]);
});
