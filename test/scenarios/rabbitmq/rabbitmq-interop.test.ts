import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Channel } from "amqplib";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRabbitmqPublisher, createRabbitmqSubscriber } from "../../../src/brokers/rabbitmq/index.ts";
import type { IncomingMessage } from "../../../src/core/message.ts";
import { richSample, sample } from "../../../src/testing/broker/sample-message.ts";
import { until, withDeadline } from "../../harness/deadline.ts";
import { runCommand } from "../../harness/run-command.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { ServerUnavailableError } from "../../harness/server-unavailable-error.ts";
import { startRabbitmq, type RabbitmqServer } from "../../harness/start-rabbitmq.ts";
import { testConnection, type TestConnection } from "../../support/rabbitmq-connection.ts";

const script = fileURLToPath(new URL("../../support/pika-client.py", import.meta.url));
const slot = await serverOrSkip("RabbitMQ with pika", async () => {
  const python = await pythonWithPika();
  const server = await startRabbitmq();
  return { python, server, stop: () => server.stop() };
});
afterAll(() => slot.stop());

/** Debian's own Python has Debian's pika, whichever other one is first in PATH. */
async function pythonWithPika(): Promise<string> {
  for (const python of ["/usr/bin/python3", "python3"]) {
    const result = await runCommand(python, ["-c", "import pika"]).catch(() => undefined);
    if (result?.code === 0) return python;
  }
  throw new ServerUnavailableError("No Python with pika. Install it: apt-get install python3-pika");
}

interface Seen {
  routingKey: string;
  messageId: string;
  headers: Record<string, unknown>;
  body: string;
}

describe.skipIf(slot.skipped)("beside pika, a client of another language", () => {
  const queue = "interop";
  let server: RabbitmqServer;
  let link: TestConnection;
  let channel: Channel;

  beforeEach(async () => {
    server = slot.server.server;
    link = await testConnection(server.url);
    channel = await link.connection.createChannel();
    await channel.assertExchange(queue, "topic");
    for (const name of [queue, `${queue}.dead`]) await channel.assertQueue(name);
    await channel.bindQueue(queue, queue, "#");
  });
  afterEach(async () => {
    await channel.deleteQueue(queue);
    await link[Symbol.asyncDispose]();
  });

  async function pika(args: readonly string[], input = ""): Promise<string> {
    const child = spawn(slot.server.python, [script, server.url, ...args], { stdio: ["pipe", "pipe", "pipe"] });
    let [out, errors] = ["", ""];
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => (out += chunk));
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
    child.stdin.end(input);
    const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
    const code = await withDeadline(ended, 20_000, "pika").finally(() => child.kill("SIGKILL"));
    expect(`${code} ${errors}`).toBe("0 ");
    return out;
  }

  async function read(count: number): Promise<Seen[]> {
    const lines = (await pika(["read", queue, String(count)])).trim().split("\n");
    return lines.map((line) => JSON.parse(line) as Seen);
  }

  it("what we publish can be read by its properties and headers", async () => {
    const publisher = createRabbitmqPublisher({ connection: link.connection });
    const message = { ...richSample(queue), type: "order_created" };
    const bytes = sample(queue, 1, {
      body: Uint8Array.of(0, 255, 1),
      headers: { contentType: "application/octet-stream", tenant: "t-ü" },
    });
    const results = await publisher.publish([message, bytes], new AbortController().signal);
    expect(results.map(({ status }) => status)).toEqual(["published", "published"]);
    const [first, second] = await read(2);
    expect(first).toMatchObject({
      exchange: queue,
      routingKey: "order.created",
      messageId: message.id,
      type: "order_created",
      correlationId: "c-ü",
      timestamp: Math.floor(message.createdAt.getTime() / 1000),
      contentType: "application/json",
      deliveryMode: 2,
      headers: { "txbox-id": message.id, "txbox-key": message.key, traceparent: message.headers.traceparent },
    });
    expect(Buffer.from(first?.body ?? "", "base64").toString()).toBe(message.body);
    expect(second).toMatchObject({ contentType: "application/octet-stream", body: "AP8B", headers: { tenant: "t-ü" } });
    await publisher.close?.();
  });

  it("what we publish as CloudEvents has the names of that standard", async () => {
    const publisher = createRabbitmqPublisher({
      connection: link.connection,
      envelope: "cloudevents",
      source: "https://shop.example/orders",
    });
    const message = sample(queue, { n: 1 }, { type: "order_created", aggregateId: "o-1" });
    await publisher.publish([message], new AbortController().signal);
    const [seen] = await read(1);
    expect(seen).toMatchObject({
      contentType: "application/json",
      headers: {
        cloudEvents_specversion: "1.0",
        cloudEvents_id: message.id,
        cloudEvents_source: "https://shop.example/orders",
        cloudEvents_type: "order_created",
        cloudEvents_subject: "o-1",
        cloudEvents_time: message.createdAt.toISOString(),
      },
    });
    await publisher.close?.();
  });

  it("we understand what it publishes: plain, with properties, and as CloudEvents", async () => {
    const got: IncomingMessage[] = [];
    const subscriber = createRabbitmqSubscriber({ connection: link.connection, queue, concurrency: 1 });
    await subscriber.start("c", async (message) => {
      got.push(message);
      return { status: "done" };
    });
    const body = Buffer.from('{"orderId":"ö-1"}').toString("base64");
    const attributes = { specversion: "1.0", id: "e-1", source: "/shop", type: "order_created", partitionkey: "o-1" };
    const cloudEvent = (prefix: string): object =>
      Object.fromEntries(Object.entries(attributes).map(([name, value]) => [prefix + name, value]));
    const messages = [
      { routingKey: "order.created", properties: {} },
      {
        routingKey: "order.created",
        properties: { message_id: "p-1", type: "order_created", correlation_id: "c-1", timestamp: 1_770_091_506 },
      },
      { routingKey: "x", properties: { content_type: "application/json", headers: cloudEvent("cloudEvents:") } },
      {
        routingKey: "x",
        properties: { headers: { ...cloudEvent("cloudEvents_"), tenant: "t", n: 7, list: [1, "a"] } },
      },
    ];
    await pika(["write"], messages.map((one) => `${JSON.stringify({ exchange: queue, body, ...one })}\n`).join(""));
    await until(() => got.length >= 4, { what: "the messages of pika" });
    await subscriber.stop();
    for (const one of got) expect(Buffer.from(one.body as Uint8Array).toString("base64")).toBe(body);
    expect(got[0]).toMatchObject({ routingKey: "order.created", headers: {} });
    expect(got[0]?.id).toBeUndefined();
    expect(got[1]).toMatchObject({ id: "p-1", type: "order_created", headers: { correlationId: "c-1" } });
    expect(got[1]?.createdAt?.toISOString()).toBe("2026-02-03T04:05:06.000Z");
    const event = { id: "/shop#e-1", type: "order_created", key: "o-1" };
    expect(got[2]).toMatchObject({ ...event, headers: { contentType: "application/json" } });
    expect(got[3]).toMatchObject({ ...event, headers: { tenant: "t", n: 7, list: [1, "a"] } });
  });
});
