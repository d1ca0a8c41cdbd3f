import { EventEmitter } from "node:events";
import { describe, expect, test } from "vitest";
import {
  createRabbitmqPublisher,
  createRabbitmqSubscriber,
  rabbitmqUrls,
  type RabbitmqConnection,
} from "../../../src/brokers/rabbitmq/index.ts";
import type { RabbitmqMessage } from "../../../src/brokers/rabbitmq/rabbitmq-client.ts";
import {
  deliveriesBefore,
  openFromRabbitmq,
  encodeForRabbitmq,
} from "../../../src/brokers/rabbitmq/rabbitmq-envelope.ts";
import { routeByStream, routeOf } from "../../../src/brokers/rabbitmq/rabbitmq-route.ts";
import { assertSameMessage, richSample, sample } from "../../../src/testing/broker/sample-message.ts";

const rich = richSample("orders");
const bare = sample("orders", 1, { key: null, headers: {} });

function delivered(
  properties: object,
  body: string | Uint8Array = "{}",
  routingKey = "order.created",
): RabbitmqMessage {
  return { content: Buffer.from(body as string), fields: { exchange: "orders", routingKey }, properties };
}

describe("the envelope", () => {
  test.each(["native", "cloudevents"] as const)("%s: what is sealed can be opened", (format) => {
    for (const message of [rich, bare]) {
      assertSameMessage(openFromRabbitmq(delivered(encodeForRabbitmq(message, format).options, message.body)), message);
    }
  });

  test("sets the properties that others read", () => {
    const createdAt = new Date("2026-02-03T04:05:06.789Z");
    const message = sample("orders", 1, { id: "m-1", type: "order_created", createdAt });
    expect(encodeForRabbitmq(message, "native").options).toMatchObject({
      persistent: true,
      mandatory: true,
      messageId: "m-1",
      type: "order_created",
      correlationId: "c-1",
      timestamp: 1_770_091_506,
      contentType: "application/json",
    });
  });

  test("names CloudEvents attributes as AMQP does", () => {
    const { options } = encodeForRabbitmq(sample("orders", 1, { id: "m-1" }), "cloudevents", "/shop");
    expect(options.headers).toMatchObject({
      cloudEvents_specversion: "1.0",
      cloudEvents_id: "m-1",
      cloudEvents_source: "/shop",
      cloudEvents_type: "sampled",
    });
    expect(options.contentType).toBe("application/json");
  });

  test("leaves out a correlation id that no property holds, and keeps it as a header", () => {
    const correlationId = "c".repeat(300);
    const sealed = encodeForRabbitmq(sample("orders", 1, { headers: { correlationId } }), "native").options;
    expect(sealed.correlationId).toBeUndefined();
    expect(openFromRabbitmq(delivered(sealed)).headers.correlationId).toBe(correlationId);
  });

  test("no header of a user reaches the server under a name that it acts upon", () => {
    const headers = { CC: "elsewhere", BCC: "elsewhere", "x-match": "any" };
    const sealed = encodeForRabbitmq(sample("orders", 1, { headers }), "native").options;
    expect(Object.keys(sealed.headers ?? {}).filter((name) => name in headers)).toEqual([]);
    expect(openFromRabbitmq(delivered(sealed)).headers).toEqual(headers);
  });

  test("takes the properties of a producer that knows nothing of txbox", () => {
    const properties = {
      messageId: "f-1",
      type: "order_created",
      correlationId: "c-9",
      contentType: "application/json",
      timestamp: 1_770_091_506,
      headers: { tenant: "t-1", "x-delivery-count": 3 },
    };
    const message = openFromRabbitmq(delivered(properties));
    expect(message).toMatchObject({ id: "f-1", type: "order_created", routingKey: "order.created" });
    expect(message.createdAt?.toISOString()).toBe("2026-02-03T04:05:06.000Z");
    expect(message.headers).toEqual({ tenant: "t-1", correlationId: "c-9", contentType: "application/json" });
    expect(deliveriesBefore(delivered(properties))).toBe(3);
  });

  test("a message with nothing but a body has the routing key, and nothing else", () => {
    const message = openFromRabbitmq(delivered({ timestamp: "soon", messageId: 7 }));
    expect(message).toMatchObject({ routingKey: "order.created", headers: {} });
    expect([message.id, message.type, message.createdAt]).toEqual([undefined, undefined, undefined]);
  });
});

describe("the route", () => {
  test("is by default the exchange of the stream, and the type with dots", () => {
    const message = sample("orders", 1, { type: "order_line_added" });
    expect(routeByStream(message)).toEqual({ exchange: "orders", routingKey: "order.line.added" });
  });

  test.each([
    [() => ({ exchange: "e", routingKey: "k".repeat(256) }), "permanent"],
    [() => ({ exchange: 7, routingKey: "k" }), "permanent"],
    [() => undefined, undefined],
  ])("that AMQP cannot carry is an error of that message", (route, code) => {
    const result = routeOf(route as never, bare);
    expect(result).toBeInstanceOf(Error);
    expect((result as { code?: string }).code).toBe(code);
  });
});

describe("several nodes", () => {
  test("each attempt to connect goes to the next, and reads one address as a whole", async () => {
    const address = rabbitmqUrls([
      "amqp://app:p%40ss@one:5673/%2Fvhost?heartbeat=7&frameMax=8192",
      "amqps://[::1]",
      "amqp://three",
    ]);
    const read = async (): Promise<object> => {
      const { hostname, port, protocol, username, password, vhost, heartbeat, frameMax } = address;
      await Promise.resolve();
      return { hostname, port, protocol, username, password, vhost, heartbeat, frameMax };
    };
    const user = { username: "app", password: "p@ss" };
    const first = { protocol: "amqp", hostname: "one", port: 5673, vhost: "%2Fvhost", heartbeat: 7, frameMax: 8192 };
    expect(await read()).toEqual({ ...first, ...user });
    expect(await read()).toEqual({ protocol: "amqps", hostname: "::1" });
    expect(await read()).toEqual({ protocol: "amqp", hostname: "three" });
    expect(await read()).toMatchObject({ hostname: "one" });
  });

  test.each([
    [[], /at least one/],
    ["amqp://one", /at least one/],
    [["http://one"], /no URL of RabbitMQ/],
    [["one:secret@"], /no URL/],
  ])("%j is refused", (urls, message) => {
    const refusal = { code: "invalid_option", field: "urls", message: expect.stringMatching(message) };
    expect(() => rabbitmqUrls(urls as string[])).toThrow(expect.objectContaining(refusal));
  });
});

describe("options", () => {
  const connection = Object.assign(new EventEmitter(), {
    createChannel: () => Promise.reject(new Error("none")),
    createConfirmChannel: () => Promise.reject(new Error("none")),
    waitForConnect: () => Promise.resolve(),
  }) as RabbitmqConnection;
  const error = (field: string, text: RegExp): object =>
    expect.objectContaining({ code: "invalid_option", field, message: expect.stringMatching(text) });

  test("a connection that does not recover is refused, with the way to get one that does", () => {
    const plain = { createChannel() {}, createConfirmChannel() {}, on() {} };
    for (const create of [createRabbitmqPublisher, createRabbitmqSubscriber]) {
      const queue = create === createRabbitmqSubscriber ? { queue: "q" } : {};
      const options = { connection: plain, ...queue } as never;
      expect(() => create(options)).toThrow(error("connection", /recovery: true/));
      expect(() => create({} as never)).toThrow(error("connection", /amqplib/));
      expect(() => create(undefined as never)).toThrow(error("connection", /amqplib/));
    }
  });

  test.each([
    [{ declared: true }, "declared", /"declare"/],
    [{ envelope: "cloudevent" }, "envelope", /cloudevents/],
    [{ route: "orders" }, "route", /function/],
    [{ timeoutMs: 0 }, "timeoutMs", /whole number/],
    [{ confirmTimeoutMs: 1000 }, "confirmTimeoutMs", /Use timeoutMs instead/],
    [{ unroutable: "drop" }, "unroutable", /"wait" or "reject"/],
  ])("of a publisher: %j names the field and the fix", (options, field, text) => {
    expect(() => createRabbitmqPublisher({ connection, ...options } as never)).toThrow(error(field, text));
  });

  test.each([
    [{ queue: "" }, "queue", /name of a queue/],
    [{ preFetch: 1 }, "preFetch", /"prefetch"/],
    [{ prefetch: 0 }, "prefetch", /whole number/],
    [{ maxDeliveries: 0 }, "maxDeliveries", /whole number/],
    [{ deadLetter: { exchange: "" } }, "deadLetter", /queue/],
    [{ declare: { binds: {} } }, "binds", /"bind"/],
  ])("of a subscriber: %j names the field and the fix", (options, field, text) => {
    expect(() => createRabbitmqSubscriber({ connection, queue: "q", ...options } as never)).toThrow(error(field, text));
  });
});
