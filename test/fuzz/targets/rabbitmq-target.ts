import type { ConfirmChannel, Options } from "amqplib";
import { createRabbitmqSubscriber } from "../../../src/brokers/rabbitmq/index.ts";
import { encodeForRabbitmq } from "../../../src/brokers/rabbitmq/rabbitmq-envelope.ts";
import { startRabbitmq } from "../../harness/index.ts";
import { testConnection } from "../../support/rabbitmq-connection.ts";
import type { BrokerTarget } from "../broker-target.ts";
import type { HostileEnvelope } from "../hostile-envelope.ts";

const QUEUE = "orders.queue";

export async function rabbitmqTarget(): Promise<BrokerTarget> {
  const server = await startRabbitmq({ owned: true });
  const ours = await testConnection(server.url);
  const theirs = await testConnection(server.url);
  const channel = await theirs.connection.createConfirmChannel();
  await channel.assertQueue(QUEUE, { durable: true });
  await channel.assertQueue(`${QUEUE}.dead`, { durable: true });
  const dead: Uint8Array[] = [];
  await channel.consume(`${QUEUE}.dead`, (message) => void (message && dead.push(message.content)), { noAck: true });
  return {
    transport: { cloudEventPrefixes: ["cloudEvents_", "cloudEvents:", "ce-", "ce_"], asciiOnly: false },
    tables: true,
    subscriber: async (onEvent) =>
      createRabbitmqSubscriber({
        connection: ours.connection,
        queue: QUEUE,
        maxAttempts: 2,
        backoff: { baseMs: 1, maxMs: 2 },
        onEvent,
      }),
    sendHostile: (envelopes) =>
      Promise.all(envelopes.map((envelope) => send(channel, envelope.body, options(envelope)))),
    async sendGood(messages) {
      for (const message of messages) {
        const sealed = encodeForRabbitmq(message, "native");
        if (!(await send(channel, sealed.content, sealed.options))) throw new Error("a good message was refused");
      }
    },
    newDead: async () => dead.splice(0),
    async [Symbol.asyncDispose]() {
      await theirs[Symbol.asyncDispose]();
      await ours[Symbol.asyncDispose]();
      await server.stop();
    },
  };
}

/** Half of them say in properties what the others say in headers. */
function options({ n, fields }: HostileEnvelope): Options.Publish {
  const headers = Object.create(null) as Record<string, unknown>;
  for (const [name, value] of fields) headers[name] = value;
  const text = (name: string): string | undefined => {
    const value = headers[name];
    return typeof value === "string" && Buffer.byteLength(value) < 256 ? value : undefined;
  };
  if (n % 2 === 0) return { headers };
  const [type, contentType] = [text("txbox-type"), text("content-type")];
  const properties = { ...(type === undefined ? {} : { type }), ...(contentType === undefined ? {} : { contentType }) };
  return { headers, messageId: `m-${n}`, ...properties };
}

/** False when the client cannot encode it, or the server does not want it. */
function send(channel: ConfirmChannel, body: Buffer, properties: Options.Publish): Promise<boolean> {
  return new Promise((resolve) => {
    try {
      channel.sendToQueue(QUEUE, body, properties, (error) => resolve(error == null));
    } catch {
      resolve(false);
    }
  });
}
