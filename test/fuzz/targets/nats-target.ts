import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, type MsgHdrs } from "@nats-io/transport-node";
import { createNatsPublisher, createNatsSubscriber } from "../../../src/brokers/nats/index.ts";
import { NATS_TRANSPORT } from "../../../src/brokers/nats/nats-headers.ts";
import { startNats } from "../../harness/index.ts";
import { type BrokerTarget, fieldBytes } from "../broker-target.ts";

const STREAM = "orders";

export async function natsTarget(): Promise<BrokerTarget> {
  const server = await startNats({ owned: true });
  const connection = await connect({ servers: server.url });
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: STREAM, subjects: [`${STREAM}.>`] });
  await manager.streams.add({ name: "dead", subjects: [`${STREAM}-dead`] });
  await manager.consumers.add(STREAM, { durable_name: "fuzz", ack_policy: "explicit", ack_wait: 30_000 * 1e6 });
  await manager.consumers.add("dead", { durable_name: "reader", ack_policy: "explicit" });
  const sender = createNatsPublisher({ connection });
  return {
    transport: NATS_TRANSPORT,
    tables: false,
    subscriber: async (onEvent) =>
      createNatsSubscriber({ connection, stream: STREAM, maxAttempts: 2, backoff: { baseMs: 1, maxMs: 2 }, onEvent }),
    async sendHostile(envelopes) {
      const taken: boolean[] = [];
      for (const { body, fields } of envelopes) {
        const headers = rawHeaders(fields.map(([name, value]) => [Buffer.from(name), fieldBytes(value)]));
        taken.push(
          await connection.request(`${STREAM}.foreign`, body, { headers, timeout: 5000 }).then(
            (answer) => isTaken(answer.string()),
            () => false,
          ),
        );
      }
      return taken;
    },
    async sendGood(messages) {
      const results = await sender.publish(messages, new AbortController().signal);
      if (results.some(({ status }) => status !== "published")) throw new Error("a good message was not published");
    },
    async newDead() {
      const consumer = await jetstream(connection).consumers.get("dead", "reader");
      const found: Uint8Array[] = [];
      for await (const message of await consumer.fetch({ max_messages: 500, expires: 1000 })) {
        found.push(message.data);
        message.ack();
      }
      return found;
    },
    async [Symbol.asyncDispose]() {
      await sender.close?.();
      await connection.close();
      await server.stop();
    },
  };
}

function isTaken(answer: string): boolean {
  const said = JSON.parse(answer) as { error?: unknown; duplicate?: boolean };
  return said.error === undefined && said.duplicate !== true;
}

/** Header lines with any bytes but those that end a line: a client of our own would not send most of them. */
function rawHeaders(fields: readonly (readonly [Buffer, Buffer])[]): MsgHdrs {
  const clean = (bytes: Buffer, without: RegExp): Buffer =>
    Buffer.from(bytes.toString("latin1").replaceAll(without, ""), "latin1");
  const lines = fields.map(([name, value]) =>
    // oxlint-disable-next-line no-control-regex -- these end a line or a name
    Buffer.concat([clean(name, /[\r\n:\0]/g), Buffer.from(": "), clean(value, /[\r\n]/g), Buffer.from("\r\n")]),
  );
  const bytes = Buffer.concat([Buffer.from("NATS/1.0\r\n"), ...lines, Buffer.from("\r\n")]);
  return { encode: () => bytes } as unknown as MsgHdrs;
}
