import { createRedisPublisher, createRedisSubscriber } from "../../../src/brokers/redis/index.ts";
import { decodeEnvelope, encodeEnvelope } from "../../../src/adapter/envelope.ts";
import type { Transport } from "../../../src/adapter/transport.ts";
import type { Subscriber } from "../../../src/core/contracts.ts";
import type { IncomingMessage, Message } from "../../../src/core/message.ts";
import {
  CONFORMANCE_ATTEMPTS,
  eventually,
  type PublisherContext,
  type SubscriberContext,
} from "../../../src/testing/index.ts";
import { startRedis } from "../../harness/start-redis.ts";
import {
  fieldsOf,
  redisClient,
  redisProbe,
  type RedisClientKind,
  type RedisProbe,
} from "../../support/redis-clients.ts";

const TRANSPORT: Transport = { cloudEventPrefixes: ["ce_"], asciiOnly: false };

async function entriesOf(probe: RedisProbe, key: string): Promise<Map<string, Buffer>[]> {
  const reply = (await probe.command("XRANGE", key, "-", "+")) as [Buffer, Buffer[]][];
  return reply.map(([, flat]) => fieldsOf(flat));
}

async function atLeast<T>(count: number, look: () => Promise<readonly T[]>): Promise<readonly T[]> {
  return eventually(
    async () => {
      const found = await look();
      if (found.length < count) throw new Error(`${found.length} of ${count} are there`);
      return found;
    },
    { timeoutMs: 15_000 },
  );
}

/** A server of its own for each case, so that it can be killed. */
export async function redisPublisherContext(kind: RedisClientKind): Promise<PublisherContext & AsyncDisposable> {
  const server = await startRedis({ owned: true, settings: { "proto-max-bulk-len": "1mb" } });
  const probe = await redisProbe(server.url);
  const client = redisClient(kind, server.url);
  const stream = "orders";
  const refused = new Map<string, "failed" | "rejected">();
  await probe.command("XGROUP", "CREATE", stream, "g", "0", "MKSTREAM");
  await probe.command("SET", "no-stream", "");
  const streamKey = (message: Message): string => {
    const how = refused.get(message.id);
    if (how === undefined) return message.stream;
    // The server itself refuses: this key holds no stream. Nothing that it says makes a single message fail.
    if (how === "rejected") return "no-stream";
    refused.delete(message.id);
    throw new Error("no stream for it just now");
  };
  const options = { client, streamKey, declare: false } as const;
  const publisher = createRedisPublisher(options);
  const cloudEvents = createRedisPublisher({ ...options, envelope: "cloudevents" });
  return {
    publisher,
    cloudEvents,
    stream,
    async contentTypes(count) {
      const entries = await atLeast(count, () => entriesOf(probe, stream));
      return entries.map((fields) => fields.get("content-type")?.toString());
    },
    async arrived(count) {
      const entries = await atLeast(count, () => entriesOf(probe, stream));
      return entries.map((fields): IncomingMessage => {
        const body = fields.get("body") ?? "";
        fields.delete("body");
        return decodeEnvelope(
          Object.fromEntries([...fields].map(([name, value]) => [name, String(value)])),
          body,
          TRANSPORT,
        );
      });
    },
    refuse: async (id, how) => void refused.set(id, how),
    oversized: () => "x".repeat(1024 * 1024 + 1),
    unroutable: () => "nowhere",
    goDown: () => server.kill(),
    comeBack: () => server.start(),
    disconnect: async () => void (await probe.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")),
    async hang() {
      server.pause();
      return async () => server.resume();
    },
    async [Symbol.asyncDispose]() {
      server.resume();
      await publisher.close?.();
      await cloudEvents.close?.();
      await probe[Symbol.asyncDispose]();
      await server.stop();
    },
  };
}

export async function redisSubscriberContext(
  kind: RedisClientKind,
  options: { ordered?: boolean } = {},
): Promise<SubscriberContext & AsyncDisposable> {
  const server = await startRedis({ owned: true });
  const probe = await redisProbe(server.url);
  const client = redisClient(kind, server.url);
  const stream = "orders";
  const subscribers: Subscriber[] = [];
  return {
    subscriber(limits) {
      const one = createRedisSubscriber({
        client,
        streams: stream,
        declare: true,
        takeOverAfterMs: 3000,
        maxAttempts: CONFORMANCE_ATTEMPTS,
        backoff: { baseMs: 5, maxMs: 20 },
        ...options,
        ...limits,
      });
      subscribers.push(one);
      return one;
    },
    stream,
    async send(messages) {
      for (const message of messages) {
        const fields = Object.entries(encodeEnvelope(message, "native", TRANSPORT)).flat();
        const body = typeof message.body === "string" ? message.body : Buffer.from(message.body);
        await probe.command("XADD", stream, "*", ...fields, "body", body);
      }
    },
    async sendForeign(body, headers = {}) {
      await probe.command("XADD", stream, "*", "body", Buffer.from(body), ...Object.entries(headers).flat());
    },
    disconnect: async () => void (await probe.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")),
    restart: () => server.restart(),
    async deadLetters(count) {
      const entries = await atLeast(count, () => entriesOf(probe, `${stream}.dead`));
      return entries.map((fields) => ({
        body: fields.get("body") ?? Buffer.alloc(0),
        headers: Object.fromEntries([...fields].map(([name, value]) => [name, String(value)])),
      }));
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(subscribers.map((one) => one.stop()));
      await probe[Symbol.asyncDispose]();
      await server.stop();
    },
  };
}
