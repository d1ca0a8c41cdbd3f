import { SpanKind, SpanStatusCode, propagation } from "@opentelemetry/api";
import * as api from "@opentelemetry/api";
import { afterEach, describe, expect, it, vi } from "vitest";
import { operation } from "../../../src/core/channels.ts";
import type { PreparedMessage } from "../../../src/core/contracts.ts";
import type { HandleOperation, PublishOperation, ReceiveOperation } from "../../../src/core/events.ts";
import type { Headers } from "../../../src/core/message.ts";
import { traceMessages } from "../../../src/observability/opentelemetry/index.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";
import { isChild, startTracing, type Tracing } from "../../support/tracing.ts";

const publishing = operation<PublishOperation>("relay", "publish");
const receiving = operation<ReceiveOperation>("subscriber", "receive");
const handling = operation<HandleOperation>("inbox", "handle");

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";
const traceparent = (flags: string, spanId = SPAN): string => `00-${TRACE}-${spanId}-${flags}`;
const withHeaders = (headers: Headers, n = 0) => sample("orders", n, { headers });
const published = (told: PublishOperation) =>
  publishing.run(told, async () => void (told.results = allPublished(told)));
const allPublished = ({ messages }: PublishOperation) => messages.map(() => ({ status: "published" as const }));

function recordingOutbox() {
  const written: PreparedMessage[] = [];
  const writer = {
    async enqueue(_: object, messages: readonly PreparedMessage[]) {
      written.push(...messages);
      return messages.map(({ id }) => ({ id, duplicate: false }));
    },
    lockKey: async () => undefined,
    cancel: async () => false,
  };
  const headers = () => JSON.parse(written.at(-1)?.headers ?? "{}") as Headers;
  return { outbox: createOutbox({ store: { name: "postgres", writer } }), headers };
}

let tracing: Tracing;
const start = (options: Parameters<typeof startTracing>[0] = {}): Tracing => (tracing = startTracing(options));
afterEach(() => {
  tracing?.[Symbol.dispose]();
  vi.restoreAllMocks();
});

const message = { stream: "orders", type: "order_created", payload: { secret: "payload" } };

describe("enqueue", () => {
  it("is a PRODUCER span beneath that of the caller, and its context is written with the message", async () => {
    start();
    const { outbox, headers } = recordingOutbox();
    await tracing.inSpan("request", () => outbox.enqueue({}, message));
    const span = tracing.span("enqueue orders");
    expect(isChild(span, tracing.span("request"))).toBe(true);
    const { traceId, spanId } = span.spanContext();
    expect(headers().traceparent).toBe(`00-${traceId}-${spanId}-01`);
    expect(span.kind).toBe(SpanKind.PRODUCER);
    expect(span.attributes).toEqual({
      "messaging.system": "txbox",
      "messaging.operation.name": "enqueue",
      "messaging.operation.type": "create",
      "messaging.destination.name": "orders",
      "messaging.message.id": expect.any(String),
      "txbox.message.type": "order_created",
      "txbox.store": "postgres",
    });
  });

  it("counts the messages of a batch; with several streams it has no destination", async () => {
    start();
    const { outbox } = recordingOutbox();
    await outbox.enqueue({}, [message, { ...message, stream: "other" }]);
    expect(tracing.span("enqueue").attributes).toMatchObject({ "messaging.batch.message_count": 2 });
  });

  it("leaves the trace alone that a caller gave", async () => {
    start();
    const { outbox, headers } = recordingOutbox();
    await outbox.enqueue({}, { ...message, headers: { traceparent: traceparent("01") } });
    expect(headers()).toEqual({ traceparent: traceparent("01") });
  });

  it("tells the message of a trace that is not sampled so, and carries tracestate", async () => {
    start({ ratio: 0 });
    const { outbox, headers } = recordingOutbox();
    await outbox.enqueue({}, message);
    expect(headers().traceparent).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
    expect(tracing.spans()).toEqual([]);
    const remote = { traceId: TRACE, spanId: SPAN, traceFlags: 1, traceState: api.createTraceState("vendor=1") };
    const context = api.trace.setSpanContext(api.ROOT_CONTEXT, remote);
    await api.context.with(context, () => outbox.enqueue({}, message));
    expect(headers()).toMatchObject({ tracestate: "vendor=1", traceparent: expect.stringContaining(TRACE) as string });
  });

  it("adds nothing where no SDK was set up", async () => {
    const { outbox, headers } = recordingOutbox();
    const end = traceMessages({ api });
    await outbox.enqueue({}, message);
    end();
    expect(headers()).toEqual({});
  });

  it("shows a failure, without the secrets of its text", async () => {
    start();
    const { outbox } = recordingOutbox();
    const own = new Error("no way to postgres://u:hunter2@db/x");
    await expect(outbox.enqueue({}, { ...message, stream: "" })).rejects.toThrow();
    const span = tracing.span("enqueue");
    expect(span.status.code).toBe(SpanStatusCode.ERROR);
    expect(span.attributes["error.type"]).toBe("invalid_message");
    const told: HandleOperation = { consumer: "c", how: "inline", message: withHeaders({}) };
    await handling.run(told, () => Promise.reject(own)).catch(() => undefined);
    const handled = tracing.span("handle orders");
    expect(handled.events[0]?.name).toBe("exception");
    expect(JSON.stringify([handled.status, handled.events, handled.attributes])).not.toContain("hunter2");
  });
});

describe("publish", () => {
  it("is a trace of its own with links to those of its messages, and a span in each that is sampled", async () => {
    start();
    const messages = [
      withHeaders({ traceparent: traceparent("01"), correlationId: "c-1" }),
      withHeaders({ traceparent: traceparent("00", "00f067aa0ba902b7") }),
      withHeaders({}),
    ];
    await published({ relay: "r", system: "rabbitmq", kind: "new", messages });
    const [one, batch] = tracing.spans();
    expect(tracing.spans()).toHaveLength(2);
    expect(batch).toMatchObject({ name: "publish orders", kind: SpanKind.CLIENT, parentSpanContext: undefined });
    expect(batch?.attributes).toEqual({
      "messaging.system": "rabbitmq",
      "messaging.operation.name": "publish",
      "messaging.operation.type": "send",
      "messaging.destination.name": "orders",
      "messaging.batch.message_count": 3,
      "txbox.relay": "r",
      "txbox.claim": "new",
    });
    expect(batch?.links.map(({ context, attributes }) => [context.spanId, attributes])).toEqual([
      [SPAN, { "messaging.message.id": messages[0]?.id }],
    ]);
    expect(one?.spanContext().traceId).toBe(TRACE);
    expect(one?.parentSpanContext?.spanId).toBe(SPAN);
    expect(one?.links.map(({ context }) => context.spanId)).toEqual([batch?.spanContext().spanId]);
    expect(one?.attributes).toMatchObject({
      "messaging.message.id": messages[0]?.id,
      "messaging.message.conversation_id": "c-1",
      "txbox.result": "published",
    });
    expect(one?.attributes).not.toHaveProperty("messaging.batch.message_count");
  });

  it("has 128 links at most", async () => {
    start();
    const messages = Array.from({ length: 300 }, () => withHeaders({ traceparent: traceparent("01") }));
    await published({ relay: "r", kind: "new", messages });
    expect(tracing.spans()).toHaveLength(301);
    expect(tracing.spans().at(-1)?.links).toHaveLength(128);
  });

  it("shows what failed, and nothing of what was not tried", async () => {
    start();
    const sampled = () => withHeaders({ traceparent: traceparent("01") });
    const told: PublishOperation = { relay: "r", kind: "retry", messages: [1, 2, 3, 4, 5].map(sampled) };
    const error = Object.assign(new Error("nack"), { code: "NO_ROUTE" });
    await publishing.run(told, async () => {
      told.results = [
        { status: "rejected", error },
        { status: "held" },
        { status: "unavailable" },
        { status: "running", ended: Promise.resolve({ status: "published" }) },
        undefined,
      ];
    });
    const failing = tracing.spans().filter(({ status }) => status.code === SpanStatusCode.ERROR);
    expect(failing.map(({ attributes }) => attributes["error.type"])).toEqual(["NO_ROUTE", "NO_ROUTE"]);
    expect(tracing.spans().map(({ attributes }) => attributes["txbox.result"])).toEqual([
      "rejected",
      "running",
      undefined,
    ]);
  });

  it("shows a publisher that threw, on the batch and on its messages", async () => {
    start();
    const messages = [withHeaders({ traceparent: traceparent("01") })];
    await publishing
      .run({ relay: "r", kind: "new", messages }, () => Promise.reject(new TypeError("no connection")))
      .catch(() => undefined);
    expect(tracing.spans().map(({ attributes }) => attributes["error.type"])).toEqual(["TypeError", "TypeError"]);
  });

  it("keeps instrumentations of a broker's client from replacing the context of the messages", async () => {
    start();
    propagation.setGlobalPropagator({
      inject(context, carrier: Headers) {
        const found = api.trace.getSpanContext(context);
        if (found !== undefined && api.isSpanContextValid(found)) carrier.traceparent = found.traceId;
      },
      extract: (context) => context,
      fields: () => ["traceparent"],
    });
    const carriers: Headers[] = [];
    // What those instrumentations do when a message is sent.
    const send = async (): Promise<void> => {
      const span = api.trace.getTracer("client").startSpan("send");
      const carrier: Headers = { traceparent: traceparent("01") };
      propagation.inject(api.trace.setSpan(api.context.active(), span), carrier);
      span.end();
      carriers.push(carrier);
    };
    await publishing.run({ relay: "r", system: "kafka", kind: "new", messages: [] }, send);
    expect(carriers).toEqual([{ traceparent: traceparent("01") }]);
    expect(tracing.spans().map(({ name }) => name)).toEqual(["publish"]);
    // A publisher of the application is traced like the rest of it.
    await publishing.run({ relay: "own", kind: "new", messages: [] }, send);
    const [client, batch] = tracing.spans().slice(1);
    expect(isChild(client!, batch!)).toBe(true);
    propagation.disable();
  });
});

describe("receive and handle", () => {
  const deliver = (headers: Headers, handler: () => Promise<unknown>) => {
    const taken = withHeaders(headers);
    const told: ReceiveOperation = { consumer: "payments", system: "kafka", message: taken };
    return receiving.run(told, async () => {
      const attempt: HandleOperation = { consumer: "payments", how: "inline", message: taken };
      await handling.run(attempt, async () => {
        await handler();
        attempt.result = "processed";
      });
      told.result = "ended";
    });
  };

  it("go on with the trace of the message; the handler runs inside", async () => {
    start();
    await deliver({ traceparent: traceparent("01"), tracestate: "a=b" }, () => tracing.inSpan("query", async () => {}));
    const [query, handle, receive] = tracing.spans();
    expect(receive).toMatchObject({ name: "receive orders", kind: SpanKind.CONSUMER });
    expect(receive?.parentSpanContext).toMatchObject({ traceId: TRACE, spanId: SPAN, isRemote: true });
    expect(receive?.spanContext().traceState?.serialize()).toBe("a=b");
    expect(receive?.attributes).toMatchObject({
      "messaging.system": "kafka",
      "messaging.operation.name": "receive",
      "messaging.operation.type": "receive",
      "messaging.destination.name": "orders",
      "messaging.consumer.group.name": "payments",
      "messaging.message.id": expect.any(String) as string,
      "txbox.result": "ended",
    });
    expect(handle).toMatchObject({ name: "handle orders", kind: SpanKind.INTERNAL });
    expect(handle?.attributes).toMatchObject({
      "messaging.system": "kafka",
      "messaging.operation.type": "process",
      "txbox.how": "inline",
      "txbox.result": "processed",
    });
    expect(isChild(handle!, receive!)).toBe(true);
    expect(isChild(query!, handle!)).toBe(true);
  });

  it("record nothing for a trace that is not sampled, nor what the handler does", async () => {
    start();
    await deliver({ traceparent: traceparent("00") }, () => tracing.inSpan("query", async () => {}));
    expect(tracing.spans()).toEqual([]);
  });

  it.each([
    ["none", {}],
    ["an empty one", { traceparent: "" }],
    ["a short one", { traceparent: "00-1-2-03" }],
    ["zeros", { traceparent: `00-${"0".repeat(32)}-${SPAN}-01` }],
    ["a wrong version", { traceparent: `ff-${TRACE}-${SPAN}-01` }],
    ["more than version 00 has", { traceparent: `${traceparent("01")}-more` }],
    ["capitals", { traceparent: traceparent("01").toUpperCase() }],
    ["a number", { traceparent: 7 as never }],
    ["an object", { traceparent: { toString: () => traceparent("01") } as never }],
    ["a very long one", { traceparent: `01-${TRACE}-${SPAN}-01-${"x".repeat(100_000)}` }],
  ])("begin a trace of their own when the message has %s as traceparent", async (_, headers) => {
    start();
    await deliver(headers, async () => {});
    await published({ relay: "r", kind: "new", messages: [withHeaders(headers)] });
    const receive = tracing.span("receive orders");
    expect(receive.parentSpanContext).toBeUndefined();
    expect(tracing.span("publish orders").links).toEqual([]);
  });

  it.each([
    ["a later version with more", { traceparent: `01-${TRACE}-${SPAN}-01-more` }],
    ["a broken tracestate", { traceparent: traceparent("01"), tracestate: "=,=,\u0001" }],
    ["a tracestate that is no text", { traceparent: traceparent("01"), tracestate: { a: 1 } as never }],
  ])("go on with the trace in spite of %s", async (_, headers) => {
    start();
    await deliver(headers, async () => {});
    expect(tracing.span("receive orders").spanContext().traceId).toBe(TRACE);
  });

  it("handle: inside a span of the application it is a child of that, with a link to the message", async () => {
    start();
    const told: HandleOperation = {
      consumer: "c",
      how: "inline",
      message: withHeaders({ traceparent: traceparent("01") }),
    };
    await tracing.inSpan("request", () => handling.run(told, async () => {}));
    const handle = tracing.span("handle orders");
    expect(handle.kind).toBe(SpanKind.CONSUMER);
    expect(isChild(handle, tracing.span("request"))).toBe(true);
    expect(handle.links.map(({ context }) => context.spanId)).toEqual([SPAN]);
  });

  it("have no more names than there can be streams, whatever producers send", async () => {
    start();
    for (let i = 0; i < 1000; i++) {
      const told: HandleOperation = { consumer: "c", how: "inline", message: sample(`s-${i}`, 1) };
      await handling.run(told, async () => {});
    }
    expect(new Set(tracing.spans().map(({ name }) => name)).size).toBe(501);
  });
});

describe("what is broken in the set-up", () => {
  const no = (): never => {
    throw new Error("broken");
  };

  /** Each operation once; whether all of their work was done, once. */
  async function allWork(): Promise<void> {
    const { outbox, headers } = recordingOutbox();
    let runs = 0;
    await outbox.enqueue({}, { ...message, headers: { own: "1" } });
    expect(headers()).toMatchObject({ own: "1" });
    await published({ relay: "r", kind: "new", messages: [withHeaders({ traceparent: traceparent("01") })] });
    const taken = withHeaders({});
    await receiving.run({ consumer: "c", message: taken }, () =>
      handling.run({ consumer: "c", how: "inline", message: taken }, async () => ++runs),
    );
    expect(runs).toBe(1);
  }

  it.each<[string, () => object]>([
    ["startSpan", () => Object.getPrototypeOf(api.trace.getTracer("x")) as object],
    ["spanContext", () => Object.getPrototypeOf(api.trace.getTracer("x").startSpan("x")) as object],
    ["setAttribute", () => Object.getPrototypeOf(api.trace.getTracer("x").startSpan("x")) as object],
    ["end", () => Object.getPrototypeOf(api.trace.getTracer("x").startSpan("x")) as object],
    ["with", () => api.context],
    ["active", () => api.context],
  ])("harms nothing when %s throws: the work is done, once", async (name, owner) => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    start();
    vi.spyOn(owner() as Record<string, () => unknown>, name).mockImplementation(no);
    await allWork();
    await allWork();
    expect(warn).toHaveBeenCalled();
    expect(warn.mock.calls.length).toBeLessThan(10);
  });

  it("harms nothing when the exporter throws", async () => {
    start({ exporter: { export: no, shutdown: async () => undefined } });
    await allWork();
  });

  it("refuses something else than the API, and unknown options", () => {
    expect(() => traceMessages({} as never)).toThrow(/@opentelemetry\/api/);
    expect(() => traceMessages({ api: {} } as never)).toThrow(/@opentelemetry\/api/);
    expect(() => traceMessages({ api, sampler: 1 } as never)).toThrow(/no option "sampler"/);
  });
});
