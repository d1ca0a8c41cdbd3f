import { randomBytes } from "node:crypto";
import type { Channel, ConfirmChannel } from "amqplib";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRabbitmqPublisher } from "../../../src/brokers/rabbitmq/index.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startRabbitmq } from "../../harness/start-rabbitmq.ts";
import { testConnection, type TestConnection } from "../../support/rabbitmq-connection.ts";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq());
afterAll(() => slot.stop());

const never = new AbortController().signal;

type Publish = ConfirmChannel["publish"];
type Headers = Record<string, unknown>;

interface Arrived {
  id: string;
  headers: Headers;
}

/** Tracers, loggers and limiters put themselves around `publish`: whatever they do, a message has its own headers. */
describe.skipIf(slot.skipped)("publishing to RabbitMQ by a client that is wrapped by one", () => {
  let link: TestConnection;
  let channel: Channel;
  let stream: string;

  beforeEach(async () => {
    link = await testConnection(slot.server.url);
    channel = await link.connection.createChannel();
    stream = `s-${randomBytes(5).toString("hex")}`;
    await channel.assertExchange(stream, "topic");
    await channel.assertQueue(stream);
    await channel.bindQueue(stream, stream, "#");
  });
  afterEach(() => link[Symbol.asyncDispose]());

  /** Sends ten messages, and gives the id and the headers that each of them arrived with. */
  async function sendThrough(wrap: (publish: Publish) => Publish): Promise<Arrived[]> {
    const { connection } = link;
    const create = connection.createConfirmChannel.bind(connection);
    connection.createConfirmChannel = async () => {
      const made = await create();
      made.publish = wrap(made.publish.bind(made));
      return made;
    };
    const publisher = createRabbitmqPublisher({ connection });
    const messages = Array.from({ length: 10 }, (_, n) =>
      sample(stream, n, { id: `m-${n}`, key: `k${n}`, headers: { tenant: `t${n % 2}` } }),
    );
    const results = await publisher.publish(messages, never);
    await publisher.close?.();
    expect(results.filter(({ status }) => status !== "published")).toEqual([]);
    const arrived: Arrived[] = [];
    for (let one = await channel.get(stream, { noAck: true }); one !== false;) {
      const { messageId, headers = {} } = one.properties;
      arrived.push({ id: String(messageId), headers });
      one = await channel.get(stream, { noAck: true });
    }
    expect(arrived.map(({ id }) => id)).toEqual(messages.map(({ id }) => id));
    expect(arrived.map(({ headers }) => headers["txbox-id"])).toEqual(messages.map(({ id }) => id));
    return arrived;
  }

  it("that writes to the headers", async () => {
    await sendThrough((publish) => (exchange, key, content, options, callback) => {
      const headers = options!.headers as Headers;
      for (const name in headers) headers[name] = String(headers[name]);
      return publish(exchange, key, content, options, callback);
    });
  });

  it("that reads the headers at once, and sends later", async () => {
    await sendThrough((publish) => (exchange, key, content, options, callback) => {
      const copy = { ...options, appId: `${JSON.stringify(options?.headers).length} characters` };
      queueMicrotask(() => publish(exchange, key, content, copy, callback));
      return true;
    });
  });

  it("that sends later once there is much to send", async () => {
    let count = 0;
    await sendThrough((publish) => (exchange, key, content, options, callback) => {
      const copy = { ...options };
      if (++count <= 3) return publish(exchange, key, content, copy, callback);
      setImmediate(() => publish(exchange, key, content, copy, callback));
      return false;
    });
  });

  it("that gives a header of some messages another name", async () => {
    const arrived = await sendThrough((publish) => (exchange, key, content, options, callback) => {
      const headers = options!.headers as Headers;
      if (headers["tenant"] === "t0") {
        headers["moved"] = headers["txbox-id"];
        delete headers["tenant"];
      }
      return publish(exchange, key, content, options, callback);
    });
    expect(arrived.map(({ headers }) => headers["moved"])).toEqual(
      arrived.map(({ id }, n) => (n % 2 === 0 ? id : undefined)),
    );
  });
});
