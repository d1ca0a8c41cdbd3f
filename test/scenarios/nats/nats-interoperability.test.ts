import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createNatsPublisher, createNatsSubscriber } from "../../../src/brokers/nats/index.ts";
import type { Message } from "../../../src/core/message.ts";
import { messageIdOf } from "../../../src/inbox/message-id.ts";
import { richSample, sample } from "../../../src/testing/broker/sample-message.ts";
import { recorder } from "../../../src/testing/broker/subscriber-cases.ts";
import { requirePythonPackage } from "../../harness/python-package.ts";
import { mustRun } from "../../harness/run-command.ts";
import { serverOrSkip, type ServerSlot } from "../../harness/server-or-skip.ts";
import { natsWorld, type NatsWorld } from "../../support/nats-world.ts";

const SCRIPT = fileURLToPath(new URL("../support/nats-client.py", import.meta.url));

interface PlainMessage {
  readonly subject: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Base64. */
  readonly body: string;
}

interface Plain {
  readonly world: NatsWorld;
  readonly run: (action: string, ...args: string[]) => Promise<PlainMessage[]>;
  readonly stop: () => Promise<void>;
}

async function startPlain(): Promise<Plain> {
  const { python, env } = await requirePythonPackage("nats-py", "2.16.0");
  const world = await natsWorld();
  return {
    world,
    async run(...args) {
      const { stdout } = await mustRun(python, [SCRIPT, world.server.url, ...args], { env, timeoutMs: 30_000 });
      return stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as PlainMessage);
    },
    stop: async () => world[Symbol.asyncDispose](),
  };
}

const base64 = (text: string | Uint8Array): string => Buffer.from(text as string).toString("base64");

describe("NATS JetStream with nats-py", () => {
  let slot: ServerSlot<Plain>;

  beforeAll(async () => {
    slot = await serverOrSkip("NATS or nats-py", startPlain);
  }, 180_000);
  afterAll(() => slot.stop());

  async function publish(messages: readonly Message[], envelope: "native" | "cloudevents"): Promise<void> {
    const publisher = createNatsPublisher({ connection: slot.server.world.direct, envelope, source: "/shop" });
    const results = await publisher.publish(messages, new AbortController().signal);
    expect(results.map(({ status }) => status)).toEqual(messages.map(() => "published"));
    await publisher.close?.();
  }

  it("reads what we publish, by our names and as CloudEvents", async ({ skip }) => {
    if (slot.skipped) skip(slot.reason);
    const { world, run } = slot.server;
    const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
    const native = [
      richSample(world.stream),
      sample(world.stream, null, { body: bytes, headers: { contentType: "application/octet-stream" } }),
    ];
    const event = sample(world.stream, { total: 3 }, { type: "order_created", key: "o-1", aggregateId: "o-1" });
    await publish(native, "native");
    await publish([event], "cloudevents");
    const [rich, binary, cloud] = await run("consume", world.stream, "3");
    expect(rich).toMatchObject({
      subject: `${world.stream}.order_cr%C3%A9%C3%A9`,
      headers: {
        "Nats-Msg-Id": native[0]?.id,
        "txbox-id": native[0]?.id,
        "txbox-type": "order_cr%C3%A9%C3%A9",
        "txbox-position": "9007199254740993",
        traceparent: native[0]?.headers.traceparent,
      },
      body: base64(String(native[0]?.body)),
    });
    expect(binary).toMatchObject({ headers: { "content-type": "application/octet-stream" }, body: base64(bytes) });
    expect(cloud).toMatchObject({
      subject: `${world.stream}.order_created`,
      headers: {
        "ce-specversion": "1.0",
        "ce-id": event.id,
        "ce-source": "/shop",
        "ce-type": "order_created",
        "ce-subject": "o-1",
        "ce-partitionkey": "o-1",
        "ce-time": event.createdAt.toISOString(),
      },
      body: base64('{"total":3}'),
    });
  });

  it("is read by us: plain messages, ids of NATS, and CloudEvents", async ({ skip }) => {
    if (slot.skipped) skip(slot.reason);
    const { world, run } = slot.server;
    const subject = `${world.stream}.payment.received`;
    const cloudEvent = {
      "ce-specversion": "1.0",
      "ce-id": "e-1",
      "ce-source": "https://example.org/pay",
      "ce-type": "payment_received",
      "ce-time": "2026-02-03T04:05:06Z",
      "ce-partitionkey": "Gr%C3%BC%C3%9Fe",
      "content-type": "application/json",
    };
    const { got, handle, until } = recorder();
    const connection = await world.connect();
    const purged = await world.manager.streams.purge(world.stream);
    expect(purged.success).toBe(true);
    const subscriber = createNatsSubscriber({ connection, stream: world.stream, declare: true });
    await subscriber.start("reader", handle);
    const sent = [
      { subject, body: base64('{"plain":true}') },
      { subject, body: base64("ü"), headers: { "Nats-Msg-Id": "given-1", tenant: "t-1" } },
      { subject, body: base64('{"amount":5}'), headers: cloudEvent },
    ];
    expect(await run("publish", JSON.stringify(sent))).toMatchObject(sent.map(() => ({ stream: world.stream })));
    await until(3);
    await subscriber.stop();
    const [plain, given, event] = sent.map(({ body }) => got.find((one) => base64(one.body) === body));
    expect(plain).toMatchObject({ id: undefined, headers: {}, routingKey: subject });
    expect(messageIdOf(plain!)).toMatch(/^[0-9a-f]{64}$/);
    expect(given).toMatchObject({ id: "given-1", headers: { tenant: "t-1" }, routingKey: subject });
    expect(event).toMatchObject({
      id: "https://example.org/pay#e-1",
      type: "payment_received",
      key: "Grüße",
      createdAt: new Date("2026-02-03T04:05:06Z"),
      headers: { contentType: "application/json" },
    });
  });
});
