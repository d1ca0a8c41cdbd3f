import { Redis } from "ioredis";
import { createRedisSubscriber } from "../../../src/brokers/redis/index.ts";
import { encodeEnvelope } from "../../../src/adapter/envelope.ts";
import { startRedis } from "../../harness/index.ts";
import { type BrokerTarget, fieldBytes } from "../broker-target.ts";

const STREAM = "orders";

export async function redisTarget(): Promise<BrokerTarget> {
  const server = await startRedis({ owned: true });
  const client = new Redis(server.url);
  const transport = { cloudEventPrefixes: ["ce_", "ce-", "cloudEvents:"] as const, asciiOnly: false };
  let lastDead = "-";
  return {
    transport: { ...transport, cloudEventPrefixes: [...transport.cloudEventPrefixes] as [string, ...string[]] },
    tables: false,
    subscriber: async (onEvent) =>
      createRedisSubscriber({
        client,
        streams: STREAM,
        declare: true,
        maxAttempts: 2,
        backoff: { baseMs: 1, maxMs: 2 },
        onEvent,
      }),
    async sendHostile(envelopes) {
      const sent = envelopes.map(async ({ n, body, fields }) => {
        const flat = fields.flatMap(([name, value]) => [Buffer.from(name), fieldBytes(value)]);
        // Many producers send no body, but fields.
        const last = n % 7 === 0 ? ["mark", body] : ["body", body];
        return client.call("XADD", STREAM, "*", ...flat, ...last);
      });
      return (await Promise.allSettled(sent)).map(({ status }) => status === "fulfilled");
    },
    async sendGood(messages) {
      for (const message of messages) {
        const fields = Object.entries(
          encodeEnvelope(message, "native", { cloudEventPrefixes: ["ce_"], asciiOnly: false }),
        );
        await client.call("XADD", STREAM, "*", ...fields.flat(), "body", Buffer.from(message.body));
      }
    },
    async newDead() {
      const entries = (await client.callBuffer("XRANGE", `${STREAM}.dead`, lastDead, "+")) as [Buffer, Buffer[]][];
      const last = entries.at(-1);
      if (last !== undefined) lastDead = `(${last[0].toString()}`;
      return entries.map(([, fields]) => {
        const at = fields.findIndex((name, i) => i % 2 === 0 && ["body", "mark"].includes(name.toString()));
        return fields[at + 1] ?? Buffer.alloc(0);
      });
    },
    async [Symbol.asyncDispose]() {
      client.disconnect();
      await server.stop();
    },
  };
}
