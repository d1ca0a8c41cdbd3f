import { randomUUID } from "node:crypto";
import { createKafkaSubscriber } from "../../../src/brokers/kafka/index.ts";
import { KAFKA_TRANSPORT, encodeMessage } from "../../../src/brokers/kafka/kafka-envelope.ts";
import { startKafka } from "../../harness/index.ts";
import { createTopic, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";
import { type BrokerTarget, fieldBytes } from "../broker-target.ts";

export async function kafkaTarget(): Promise<BrokerTarget> {
  const server = await startKafka({ owned: true });
  const { brokers } = server;
  const topic = `orders-${randomUUID()}`;
  await createTopic(brokers, topic);
  await createTopic(brokers, `${topic}.dead`, 1);
  const hostile = openProducer(brokers);
  const consumer = openConsumer(brokers, `group-${topic}`);
  const producer = openProducer(brokers);
  // Not kafkajs, which cannot read a header of the name __proto__.
  const reader = openConsumer(brokers, `dead-${topic}`, { retries: 50, retryDelay: 200 });
  const letters = await reader.consume({
    topics: [`${topic}.dead`],
    mode: "earliest",
    autocommit: false,
    maxWaitTime: 50,
  });
  const dead: Uint8Array[] = [];
  letters.on("data", ({ value }) => dead.push(value ?? Buffer.alloc(0)));
  return {
    transport: KAFKA_TRANSPORT,
    tables: false,
    subscriber: async (onEvent) =>
      createKafkaSubscriber({
        consumer,
        producer,
        topics: [topic],
        maxAttempts: 2,
        backoff: { baseMs: 1, maxMs: 2 },
        onEvent,
      }),
    async sendHostile(envelopes) {
      const messages = envelopes.map(({ body, fields, key }) => ({
        topic,
        ...(key === undefined ? {} : { key: Buffer.from(key) }),
        value: body,
        headers: new Map(fields.map(([name, value]) => [Buffer.from(name), fieldBytes(value)])),
      }));
      await hostile.send({ messages, acks: -1 });
      return envelopes.map(() => true);
    },
    async sendGood(all) {
      const messages = all.map((message) => {
        const { key, value, headers } = encodeMessage(message, topic, "native", undefined);
        return { topic, value, headers, ...(key === undefined ? {} : { key }) };
      });
      await hostile.send({ messages, acks: -1 });
    },
    newDead: async () => dead.splice(0),
    async [Symbol.asyncDispose]() {
      await letters.close();
      await Promise.all([reader.close(), hostile.close(), consumer.close(), producer.close()]);
      await server.stop();
    },
  };
}
