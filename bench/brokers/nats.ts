import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers as newHeaders } from "@nats-io/transport-node";
import { createNatsPublisher, createNatsSubscriber } from "../../src/brokers/nats/index.ts";
import { createGate } from "../lib/gate.ts";
import { STREAM } from "../lib/messages.ts";
import { type Broker, CONCURRENCY, CONSUMER, PREFETCH } from "./broker.ts";

const DEAD = `${STREAM}-dead`;

export async function openNats(address: string): Promise<Broker> {
  const connection = await connect({ servers: address, maxReconnectAttempts: -1 });
  const manager = await jetstreamManager(connection);
  const client = jetstream(connection);
  return {
    async reset() {
      // A purged stream would still know the ids.
      await manager.streams.delete(STREAM).catch(() => undefined);
      await manager.streams.add({ name: STREAM, subjects: [`${STREAM}.>`] });
      await manager.streams.add({ name: DEAD, subjects: [DEAD] });
      await manager.consumers.add(STREAM, { durable_name: CONSUMER, ack_policy: "explicit" });
    },
    arrived: async () => (await manager.streams.info(STREAM)).state.messages,
    async unread() {
      const { num_pending: waiting, num_ack_pending: taken } = await manager.consumers.info(STREAM, CONSUMER);
      return waiting + taken;
    },
    publisher: () => Promise.resolve(createNatsPublisher({ connection })),
    subscriber: () => Promise.resolve(createNatsSubscriber({ connection, stream: STREAM })),
    async rawPublisher(messages) {
      // No part of the API: a commit that this one is compared with may not have it.
      const { NATS_TRANSPORT } = await import("../../src/brokers/nats/nats-headers.ts");
      const { subjectOf } = await import("../../src/brokers/nats/nats-subject.ts");
      const { encodeEnvelope } = await import("../../src/adapter/envelope.ts");
      const ready = messages.map((message) => {
        const headers = newHeaders();
        const fields = encodeEnvelope(message, "native", NATS_TRANSPORT);
        for (const name in fields) headers.set(name, fields[name]!);
        return {
          subject: subjectOf(message),
          body: Buffer.from(message.body),
          options: { msgID: message.id, headers },
        };
      });
      return async (from: number, to: number) => {
        const batch = ready.slice(from, to);
        await Promise.all(batch.map(({ subject, body, options }) => client.publish(subject, body, options)));
      };
    },
    async rawConsumer(handle) {
      const gate = createGate(CONCURRENCY);
      const consumer = await client.consumers.get(STREAM, CONSUMER);
      const messages = await consumer.consume({
        max_messages: PREFETCH,
        callback(message) {
          void gate(async () => {
            await handle({ id: message.headers?.get("txbox-id") ?? "", body: message.string() });
            message.ack();
          });
        },
      });
      return async () => {
        await messages.close();
        await connection.flush();
      };
    },
    [Symbol.asyncDispose]: () => connection.close(),
  };
}
