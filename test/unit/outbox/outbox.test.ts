import { describe, expect, it } from "vitest";
import { runHandling } from "../../../src/core/causation.ts";
import type { PreparedMessage, Writer } from "../../../src/core/contracts.ts";
import { onEnqueued } from "../../../src/core/enqueue-signal.ts";
import { uuidv7Time } from "../../../src/core/uuid.ts";
import { createOutbox, type OutboxOptions } from "../../../src/outbox/outbox.ts";
import type { AnyEvents } from "../../../src/core/message.ts";
import { listen } from "../../../src/observability/listen.ts";

const tx = {};

function recording() {
  const written: PreparedMessage[] = [];
  const writer: Writer<object> = {
    async enqueue(_, messages) {
      written.push(...messages);
      return messages.map(({ id }) => ({ id, duplicate: false }));
    },
    lockKey: async () => undefined,
    cancel: async () => false,
  };
  const store = { writer };
  const outbox = (more: Partial<OutboxOptions<AnyEvents, object>> = {}) => createOutbox({ store, ...more });
  return { written, store, outbox };
}

const good = { stream: "s", type: "t", payload: { n: 1 } };

/** What is wrong, the field at fault, and the code when it is not the usual one. */
const BAD: [what: string, message: unknown, field: string | undefined, code?: string][] = [
  ["undefined", undefined, undefined],
  ["null", null, undefined],
  ["a string", "message", undefined],
  ["a function", () => good, undefined],
  ["a nested array", [[good]], undefined],
  ["no stream", { type: "t", payload: 1 }, "stream"],
  ["an empty stream", { ...good, stream: "" }, "stream"],
  ["a long stream", { ...good, stream: "s".repeat(201) }, "stream"],
  ["a stream that is long in bytes", { ...good, stream: "ü".repeat(101) }, "stream"],
  ["a number as stream", { ...good, stream: 1 }, "stream"],
  ["a stream of a stored inbox", { ...good, stream: "inbox.orders" }, "stream"],
  ["no type", { stream: "s", payload: 1 }, "type"],
  ["an empty type", { ...good, type: "" }, "type"],
  ["a long type", { ...good, type: "t".repeat(201) }, "type"],
  ["null as type", { ...good, type: null }, "type"],
  ["an empty key", { ...good, key: "" }, "key"],
  ["a key over 1 KB", { ...good, key: "k".repeat(1025) }, "key"],
  ["a key over 1 KB in bytes", { ...good, key: "世".repeat(342) }, "key"],
  ["null as key", { ...good, key: null }, "key"],
  ["NUL in the key", { ...good, key: "a\0b" }, "key"],
  ["half a surrogate pair in the key", { ...good, key: "a\uD83D" }, "key"],
  ["NUL in the stream", { ...good, stream: "a\0" }, "stream"],
  ["half a surrogate pair in the type", { ...good, type: "\uDC00x" }, "type"],
  ["NUL in the aggregate type", { ...good, aggregateType: "\0" }, "aggregateType"],
  ["half a surrogate pair in the aggregate id", { ...good, aggregateId: "\uD800" }, "aggregateId"],
  ["a number as aggregate id", { ...good, aggregateId: 17 }, "aggregateId"],
  ["an empty id", { ...good, id: "" }, "id"],
  ["a long id", { ...good, id: "i".repeat(201) }, "id"],
  ["NUL in the id", { ...good, id: "\0" }, "id"],
  ["no payload", { stream: "s", type: "t" }, "payload"],
  ["an undefined payload", { ...good, payload: undefined }, "payload"],
  ["a function as payload", { ...good, payload: () => 1 }, "payload"],
  ["a symbol as payload", { ...good, payload: Symbol("x") }, "payload"],
  ["a bigint as payload", { ...good, payload: 1n }, "payload"],
  ["a bigint inside", { ...good, payload: { items: [{ total: 1n }] } }, "payload"],
  ["a function inside", { ...good, payload: { f: () => 1 } }, "payload"],
  ["a Map inside", { ...good, payload: { a: new Map() } }, "payload"],
  ["a promise as payload", { ...good, payload: Promise.resolve(1) }, "payload"],
  ["a cycle", { ...good, payload: cycle() }, "payload"],
  ["a payload that serialises to nothing", { ...good, payload: { toJSON: () => undefined } }, "payload"],
  ["a payload whose toJSON throws", { ...good, payload: { toJSON: () => JSON.parse("{") as unknown } }, "payload"],
  ["a payload too deep", { ...good, payload: deep(3000) }, "payload"],
  ["an object as text", { ...good, headers: { contentType: "text/plain" } }, "payload"],
  ["a payload too large", { ...good, payload: "x".repeat(1024 * 1024) }, "payload", "payload_too_large"],
  ["bytes too large", { ...good, payload: new Uint8Array(1024 * 1024 + 1) }, "payload", "payload_too_large"],
  ["deliverAt as text", { ...good, deliverAt: "2030-01-01" }, "deliverAt"],
  ["an invalid date", { ...good, deliverAt: new Date("x") }, "deliverAt"],
  ["a time that no database holds", { ...good, deliverAt: new Date(8.64e15) }, "deliverAt"],
  ["NaN in the headers", { ...good, headers: { a: Number.NaN } }, "headers"],
  ["headers that make their own JSON", { ...good, headers: { toJSON: () => "x" } }, "headers"],
  ["a symbol in the headers", { ...good, headers: { [Symbol("a")]: 1 } }, "headers"],
  ["a field that throws", Object.defineProperty({ ...good }, "key", { get: fails }), undefined],
  [
    "headers that throw",
    { ...good, headers: Object.defineProperty({}, "a", { enumerable: true, get: fails }) },
    undefined,
  ],
  ["a proxy that throws", new Proxy({}, { ownKeys: fails }), undefined],
  ["a hole in the array", Object.assign([], { 1: good }), undefined],
  ["headers as text", { ...good, headers: "x" }, "headers"],
  ["headers as array", { ...good, headers: [] }, "headers"],
  ["headers as Map", { ...good, headers: new Map() }, "headers"],
  ["null headers", { ...good, headers: null }, "headers"],
  ["a bigint in the headers", { ...good, headers: { a: 1n } }, "headers"],
  ["large headers", { ...good, headers: { a: "x".repeat(65_536) } }, "headers"],
  ["a number as correlation id", { ...good, headers: { correlationId: 1 } }, "headers.correlationId"],
  ["NUL in the correlation id", { ...good, headers: { correlationId: "\0" } }, "headers.correlationId"],
  ["a wrong causation path", { ...good, headers: { causationPath: ["a"] } }, "headers.causationPath"],
  ["an unknown field", { ...good, delverAt: new Date() }, "delverAt"],
  ["a field of another library", { ...good, topic: "t" }, "topic"],
];

function fails(): never {
  throw new Error("not now");
}

function cycle(): object {
  const a: Record<string, unknown> = { b: [] };
  (a["b"] as unknown[]).push(a);
  return a;
}

function deep(levels: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < levels; i++) value = [value];
  return value;
}

describe("enqueue", () => {
  it.each(BAD)("refuses %s before anything is written", async (_, message, field, code = "invalid_message") => {
    const { outbox, written } = recording();
    const expected = {
      name: "TxboxError",
      code,
      field,
      fix: expect.stringMatching(/\w/),
      message: expect.stringMatching(/\w/),
    };
    const cases = Array.isArray(message) ? [message] : [message, [good, message]];
    for (const one of cases) await expect(outbox().enqueue(tx, one as never)).rejects.toMatchObject(expected);
    expect(written).toEqual([]);
  });

  it("says why and where a payload cannot be serialised", async () => {
    const { outbox } = recording();
    const refused = (payload: unknown) => outbox().enqueue(tx, { ...good, payload });
    await expect(refused({ items: [{ total: 1n }] })).rejects.toThrow("payload.items[0].total is a bigint");
    await expect(refused({ items: [1, Number.NaN] })).rejects.toThrow(
      "payload.items[1] is NaN, which JSON turns into null",
    );
    await expect(refused({ rate: 1 / 0 })).rejects.toThrow("payload.rate is Infinity, which JSON turns into null");
    await expect(refused({ f: () => 1 })).rejects.toThrow("payload.f is a function");
    await expect(refused(cycle())).rejects.toThrow("payload.b[0] refers back");
    await expect(refused({ a: new Set() })).rejects.toThrow("payload.a is a Set");
  });

  it("names the sizes of what is too large, by bytes", async () => {
    const { outbox } = recording();
    const small = outbox({ maxPayloadBytes: 10 });
    await expect(small.enqueue(tx, { ...good, payload: "üüüüü" })).rejects.toThrow(
      "payload has 12 bytes, at most 10 are allowed",
    );
    await expect(small.enqueue(tx, { ...good, payload: "12345678" })).resolves.toMatchObject({ duplicate: false });
  });

  it("suggests the field that was meant", async () => {
    const { outbox } = recording();
    await expect(outbox().enqueue(tx, { ...good, delverAt: 1 } as never)).rejects.toThrow('Did you mean "deliverAt"?');
  });

  it("refuses an id that is twice in a batch", async () => {
    const { outbox, written } = recording();
    const batch = [{ ...good, id: "a" }, good, { ...good, id: "a" }];
    await expect(outbox().enqueue(tx, batch)).rejects.toMatchObject({ code: "invalid_message", field: "id" });
    expect(written).toEqual([]);
  });

  it.each([undefined, null, 1, "tx", true])("refuses %s as transaction", async (nothing) => {
    const { outbox } = recording();
    const refusal = { code: "no_transaction", field: "tx" };
    await expect(outbox().enqueue(nothing as never, good)).rejects.toMatchObject(refusal);
    await expect(outbox().lockKey(nothing as never, { stream: "s", key: "k" })).rejects.toMatchObject(refusal);
    await expect(outbox().cancel(nothing as never, "id")).rejects.toMatchObject(refusal);
  });

  it("refuses a forgotten transaction", async () => {
    const { outbox } = recording();
    const { enqueue } = outbox() as unknown as { enqueue: (message: unknown) => Promise<unknown> };
    for (const one of [good, [good]]) await expect(enqueue(one)).rejects.toMatchObject({ code: "no_transaction" });
  });

  it("refuses wrong keys and ids of lockKey and cancel", async () => {
    const { outbox } = recording();
    await expect(outbox().lockKey(tx, { stream: "s", key: "" })).rejects.toMatchObject({ field: "key" });
    await expect(outbox().lockKey(tx, undefined as never)).rejects.toMatchObject({ field: "stream" });
    await expect(outbox().cancel(tx, "")).rejects.toMatchObject({ field: "id" });
  });

  it("writes nothing for an empty array", async () => {
    const { outbox, written } = recording();
    expect(await outbox().enqueue(tx, [])).toEqual([]);
    expect(written).toEqual([]);
  });

  it("prepares a full message", async () => {
    const { outbox, written } = recording();
    const deliverAt = new Date();
    const headers = { correlationId: "c", schemaVersion: 1, custom: { a: [1] } };
    await outbox().enqueue(tx, {
      ...good,
      id: "i",
      key: "k",
      aggregateType: "order",
      aggregateId: "o",
      headers,
      deliverAt,
    });
    expect(written).toEqual([
      {
        id: "i",
        idChosen: true,
        stream: "s",
        type: "t",
        key: "k",
        lane: expect.any(Number),
        aggregateType: "order",
        aggregateId: "o",
        correlationId: "c",
        body: '{"n":1}',
        headers: '{"schemaVersion":1,"custom":{"a":[1]}}',
        size: 7 + 38,
        deliverAt,
      },
    ]);
  });

  it("takes the aggregate id as key, and gives those of one key one lane", async () => {
    const { outbox, written } = recording();
    await outbox().enqueue(tx, [{ ...good, aggregateId: "o" }, { ...good, key: "o" }, good]);
    expect(written.map(({ key }) => key)).toEqual(["o", "o", null]);
    expect(written[0]?.lane).toBe(written[1]?.lane);
    expect(written.map(({ headers, correlationId }) => [headers, correlationId])).toEqual(
      Array.from({ length: 3 }, () => ["{}", null]),
    );
  });

  it("keeps bytes and text of a content type", async () => {
    const { outbox, written } = recording();
    await outbox().enqueue(tx, [
      { ...good, payload: new Uint8Array([1, 2]) },
      { ...good, payload: "ü", headers: { contentType: "text/plain" } },
      { ...good, payload: "ü", headers: { contentType: "application/vnd.x+json" } },
      { ...good, payload: new Uint8Array([123, 125]), headers: { contentType: "application/json" } },
    ]);
    expect(written.map(({ body }) => body)).toEqual([
      new Uint8Array([1, 2]),
      Buffer.from("ü"),
      '"ü"',
      new Uint8Array([123, 125]),
    ]);
    expect(written.map(({ headers }) => (JSON.parse(headers) as { contentType?: string }).contentType)).toEqual([
      "application/octet-stream",
      "text/plain",
      "application/vnd.x+json",
      "application/json",
    ]);
  });

  it("gives a later message an id of its own time, and leaves the others rising", async () => {
    const { outbox, written } = recording();
    const deliverAt = new Date(Date.now() + 40 * 86_400_000);
    await outbox().enqueue(tx, [good, { ...good, deliverAt }, good]);
    expect(uuidv7Time(written[1]!.id)).toBe(deliverAt.getTime());
    expect(uuidv7Time(written[2]!.id)).toBeLessThan(Date.now() + 1000);
    expect(written[0]!.id < written[2]!.id).toBe(true);
  });

  it("inherits from the message being handled, but only the last hundred causes", async () => {
    const { outbox, written } = recording();
    const causationPath = Array.from({ length: 150 }, (_, i) => ["m", `t${i}`] as const);
    const context = { module: "pay", id: "parent", type: "paid", headers: { causationPath, traceparent: "tp" } };
    await runHandling(context, async () => {
      await outbox().enqueue(tx, good);
    });
    expect(written[0]?.correlationId).toBe("parent");
    const headers = JSON.parse(written[0]!.headers) as { causationPath: unknown[]; traceparent: string };
    expect(headers.causationPath).toHaveLength(100);
    expect(headers.causationPath.at(-1)).toEqual(["pay", "paid"]);
    expect(headers.traceparent).toBe("tp");
  });

  it("takes traceparent and tracestate from one place: the caller, a listener, the message being handled", async () => {
    const { outbox, written } = recording();
    const handled = { module: "m", id: "p", type: "t", headers: { traceparent: "handled", tracestate: "h=1" } };
    const trace = async (headers: Record<string, string>) => {
      await runHandling(handled, async () => {
        await outbox().enqueue(tx, { ...good, headers });
      });
      const { traceparent, tracestate } = JSON.parse(written.at(-1)!.headers) as Record<string, string>;
      return [traceparent, tracestate];
    };
    expect(await trace({})).toEqual(["handled", "h=1"]);
    expect(await trace({ traceparent: "own" })).toEqual(["own", undefined]);
    const end = listen("txbox:outbox:enqueue:start", ({ headers }) =>
      Object.assign(headers, { traceparent: "listener", tracestate: "l=1" }),
    );
    try {
      expect(await trace({})).toEqual(["listener", "l=1"]);
      expect(await trace({ traceparent: "own" })).toEqual(["own", undefined]);
      expect(await trace({ traceparent: "own", tracestate: "o=1" })).toEqual(["own", "o=1"]);
    } finally {
      end();
    }
    const bare = listen("txbox:outbox:enqueue:start", ({ headers }) => {
      headers["traceparent"] = "listener";
    });
    try {
      expect(await trace({})).toEqual(["listener", undefined]);
    } finally {
      bare();
    }
  });

  it("hints to relays of this process, once per call that wrote", async () => {
    const { outbox, store } = recording();
    let hints = 0;
    const stop = onEnqueued(store, () => hints++);
    await outbox().enqueue(tx, good);
    await outbox().enqueue(tx, [good, good]);
    await outbox().enqueue(tx, []);
    await outbox()
      .enqueue(tx, "bad" as never)
      .catch(() => undefined);
    expect(hints).toBe(2);
    stop();
    await outbox().enqueue(tx, good);
    expect(hints).toBe(2);
  });
});

describe("createOutbox", () => {
  it("refuses wrong options", () => {
    const { store } = recording();
    const refused = (options: unknown) => () => createOutbox(options as never);
    expect(refused(undefined)).toThrow(expect.objectContaining({ code: "invalid_option", field: "store" }));
    expect(refused({})).toThrow(expect.objectContaining({ code: "invalid_option", field: "store" }));
    expect(refused({ store, maxPayloadByte: 1 })).toThrow('Did you mean "maxPayloadBytes"?');
    for (const maxPayloadBytes of [0, -1, 1.5, "1", Number.NaN]) {
      expect(refused({ store, maxPayloadBytes })).toThrow(
        expect.objectContaining({ code: "invalid_option", field: "maxPayloadBytes" }),
      );
    }
  });
});
