import { describe, expect, test } from "vitest";
import { createNatsPublisher, createNatsSubscriber, type NatsConnection } from "../../../src/brokers/nats/index.ts";
import { EncodedHeaders } from "../../../src/brokers/nats/nats-headers.ts";
import { whyNobody } from "../../../src/brokers/nats/publish-answer.ts";
import type { JetStreamApi } from "../../../src/brokers/nats/jetstream-api.ts";
import { UnavailableError } from "../../../src/core/errors.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";

/** Enough of a connection to be looked at. */
function connection(more: Partial<NatsConnection> = {}): NatsConnection {
  return {
    publish: () => undefined,
    subscribe: () => ({ unsubscribe: () => undefined, drain: () => Promise.resolve() }),
    request: () => Promise.reject(new Error("no answer")),
    flush: () => Promise.resolve(),
    // oxlint-disable-next-line require-yield -- nothing ever happens
    status: async function* () {
      return;
    },
    isClosed: () => false,
    closed: () => new Promise(() => undefined),
    ...more,
  };
}

const invalid = (field: string, message: RegExp) =>
  expect.objectContaining({ code: "invalid_option", field, message: expect.stringMatching(message) });
const thrown = (run: () => unknown): unknown => {
  try {
    return run();
  } catch (error) {
    return error;
  }
};

describe("options of the NATS adapter", () => {
  test.each([
    [{}, "connection", /connection has no method publish.*connect\(/],
    [{ connection: { publish() {} } }, "connection", /connection has no method subscribe/],
    [{ connection: connection({ isClosed: () => true }) }, "connection", /has been closed/],
    [{ connection: connection(), stream: "x" }, "stream", /has no option "stream"/],
    [{ connection: connection(), streamname: "x" }, "streamname", /Did you mean "streamName"/],
    [{ connection: connection(), streamName: "a.b" }, "streamName", /cannot name a stream/],
    [{ connection: connection(), envelope: "xml" }, "envelope", /"native" or "cloudevents"/],
    [{ connection: connection(), timeoutMs: 0 }, "timeoutMs", /whole number/],
    [{ connection: connection(), ackTimeoutMs: 1000 }, "ackTimeoutMs", /Use timeoutMs instead/],
    [{ connection: connection(), partitions: 65 }, "partitions", /from 1 to 64/],
    [{ connection: connection(), partitions: 2, subject: (): string => "a" }, "partitions", /both set/],
    [{ connection: connection(), declare: true, subject: (): string => "a" }, "declare", /Set declare: \{ subjects/],
  ])("publisher %#: %j", (options, field, message) => {
    expect(thrown(() => createNatsPublisher(options as never))).toEqual(invalid(field, message));
  });

  test.each([
    [{ connection: connection() }, "stream", /cannot name a stream/],
    [{ connection: connection(), stream: "a.b" }, "stream", /cannot name a stream/],
    [{ connection: connection(), stream: "a", durable: "b c" }, "durable", /cannot name a consumer/],
    [{ connection: connection(), stream: "a", deadLetter: "a.*" }, "deadLetter", /no subject to publish to/],
    [{ connection: connection(), stream: "a", ackWaitMs: 1 }, "ackWaitMs", /whole number/],
    [{ connection: connection(), stream: "a", prefetch: 0 }, "prefetch", /whole number/],
    [{ connection: connection(), stream: "a", queue: "b" }, "queue", /no option "queue"/],
    [{ connection: connection(), stream: "a", shared: true }, "shared", /Use ordered: false instead/],
  ])("subscriber %#: %j", (options, field, message) => {
    expect(thrown(() => createNatsSubscriber(options as never))).toEqual(invalid(field, message));
  });

  test("a client that does not ask for the bytes of headers is given no second message", async () => {
    const published: string[] = [];
    const publisher = createNatsPublisher({
      connection: connection({ publish: (subject) => void published.push(subject) }),
    });
    const publish = () => publisher.publish([sample("orders", 1), sample("orders", 2)], new AbortController().signal);
    const error = expect.objectContaining({ message: expect.stringMatching(/takes no headers from txbox/) });
    expect(await publish()).toEqual([1, 2].map(() => ({ status: "unavailable", error })));
    await expect(publish()).rejects.toEqual(error);
    expect(published).toEqual(["orders.sampled"]);
    await publisher.close?.();
  });

  test("a client that throws is out, and no message is blamed", async () => {
    const broken = connection({
      publish: () => {
        throw new Error("draining");
      },
    });
    const publisher = createNatsPublisher({ connection: broken });
    const results = await publisher.publish([sample("orders", 1)], new AbortController().signal);
    expect(results).toMatchObject([{ status: "unavailable", error: { message: "draining" } }]);
    await publisher.close?.();
  });

  test("headers are bytes as NATS has them", () => {
    const headers = new EncodedHeaders({ a: "1" });
    expect(() => headers.requireSent()).toThrow(/takes no headers from txbox/);
    expect(Buffer.from(headers.encode()).toString()).toBe("NATS/1.0\r\na: 1\r\n\r\n");
    expect(() => headers.requireSent()).not.toThrow();
  });
});

describe("no stream answers for a subject", () => {
  const api = (streamsOf: JetStreamApi["streamsOf"]) => ({ streamsOf }) as JetStreamApi;

  test("a stream without a leader is an outage", async () => {
    const result = await whyNobody(
      api(async () => ["orders"]),
      "orders.x",
      false,
    );
    expect(result).toMatchObject({ status: "unavailable", error: { message: expect.stringMatching(/not ready/) } });
  });

  test("a server that cannot tell is an outage", async () => {
    const result = await whyNobody(
      api(() => Promise.reject(new UnavailableError("out"))),
      "orders.x",
      false,
    );
    expect(result).toMatchObject({ status: "unavailable", error: { message: "out" } });
  });

  test("no stream at all is the end of the message, and the error names what creates one", async () => {
    const result = await whyNobody(
      api(async () => []),
      "orders.x",
      false,
    );
    expect(result).toMatchObject({
      status: "rejected",
      error: { message: expect.stringMatching(/No JetStream stream keeps the subject "orders\.x".*declare: true/) },
    });
  });
});
