import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { createRedisPublisher, createRedisSubscriber } from "../../../src/brokers/redis/index.ts";
import type { IncomingMessage } from "../../../src/core/message.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";
import { until } from "../../harness/deadline.ts";
import { requireCommand } from "../../harness/require-command.ts";
import { mustRun } from "../../harness/run-command.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startRedis } from "../../harness/start-redis.ts";
import { redisClient } from "../../support/redis-clients.ts";

const slot = await serverOrSkip("Redis with redis-cli", async () => {
  const cli = await requireCommand("redis-cli", { apt: "redis-tools" });
  return Object.assign(await startRedis(), { cli });
});
afterAll(() => slot.stop());

const never = new AbortController().signal;

describe.skipIf(slot.skipped)("redis-cli, which knows nothing of txbox", () => {
  /** Names that no other run on the same server has. */
  const name = (what: string): string => `interop-${process.pid}-${what}`;

  async function cli(...args: string[]): Promise<unknown> {
    const { stdout } = await mustRun(slot.server.cli, ["-u", slot.server.url, "--json", ...args]);
    return JSON.parse(stdout) as unknown;
  }

  async function readByCli(stream: string): Promise<Record<string, string>> {
    const [[, flat]] = (await cli("XRANGE", stream, "-", "+")) as [[string, string[]]];
    await cli("DEL", stream);
    return Object.fromEntries(flat.flatMap((field, i) => (i % 2 === 0 ? [[field, flat[i + 1] ?? ""]] : [])));
  }

  it("reads what we publish", async () => {
    const publisher = createRedisPublisher({ client: redisClient("ioredis", slot.server.url) });
    onTestFinished(() => publisher.close?.());
    const stream = name("native");
    const message = sample(stream, { total: 5, text: "Grüße" }, { key: "o-1", headers: { tenant: "t-1" } });
    await publisher.publish([message], never);
    expect(await readByCli(stream)).toEqual({
      "txbox-id": message.id,
      "txbox-type": "sampled",
      "txbox-stream": stream,
      "txbox-position": String(message.position),
      "txbox-created-at": message.createdAt.toISOString(),
      "txbox-key": "o-1",
      tenant: "t-1",
      body: '{"total":5,"text":"Grüße"}',
    });
  });

  it("reads what we publish as CloudEvents", async () => {
    const client = redisClient("node-redis", slot.server.url);
    const publisher = createRedisPublisher({ client, envelope: "cloudevents", source: "/shop" });
    onTestFinished(() => publisher.close?.());
    const stream = name("events");
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const message = sample(stream, { total: 5 }, { key: "o-1", headers: { traceparent } });
    await publisher.publish([message], never);
    expect(await readByCli(stream)).toMatchObject({
      ce_specversion: "1.0",
      ce_id: message.id,
      ce_source: "/shop",
      ce_type: "sampled",
      ce_time: message.createdAt.toISOString(),
      ce_partitionkey: "o-1",
      ce_traceparent: traceparent,
      body: '{"total":5}',
    });
  });

  it("publishes what we consume, plain and as CloudEvents", async () => {
    const stream = name("foreign");
    const got: IncomingMessage[] = [];
    const subscriber = createRedisSubscriber({
      client: redisClient("ioredis", slot.server.url),
      streams: stream,
      declare: true,
    });
    await subscriber.start("interop", async (message) => {
      got.push(message);
      return { status: "done" };
    });
    onTestFinished(async () => {
      await subscriber.stop();
      await cli("DEL", stream);
    });
    await cli("XADD", stream, "*", "body", '{"plain":"ü"}', "tenant", "t-1", "content-type", "application/json");
    const attributes = { specversion: "1.0", id: "e-1", source: "/billing", type: "paid", partitionkey: "o-1" };
    const fields = Object.entries(attributes).flatMap(([attribute, value]) => [`ce_${attribute}`, value]);
    await cli("XADD", stream, "*", ...fields, "body", '{"total":5}');
    await until(() => got.length === 2, { what: "both messages" });
    const [plain, event] = got.toSorted((a, b) => String(a.type).localeCompare(String(b.type))).toReversed();
    expect(plain).toMatchObject({ headers: { tenant: "t-1", contentType: "application/json" }, routingKey: stream });
    expect(String(plain?.body)).toBe('{"plain":"ü"}');
    expect(event).toMatchObject({ id: "/billing#e-1", type: "paid", key: "o-1" });
    expect(String(event?.body)).toBe('{"total":5}');
    await until(async () => ((await cli("XPENDING", stream, "interop")) as number[])[0] === 0, { what: "acks" });
  });
});
