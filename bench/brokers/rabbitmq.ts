import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "amqplib";
import { createRabbitmqPublisher, createRabbitmqSubscriber } from "../../src/brokers/rabbitmq/index.ts";
import { createGate } from "../lib/gate.ts";
import { STREAM } from "../lib/messages.ts";
import { type Broker, CONCURRENCY, CONSUMER, PREFETCH } from "./broker.ts";

const SETTLE_MS = 100;
const QUORUM = { durable: true, arguments: { "x-queue-type": "quorum" } };

/** A quorum queue, which is what the documentation advises and what the subscriber creates. */
export async function openRabbitmq(address: string): Promise<Broker> {
  const connection = await connect(address, { recovery: { maxDelay: 1000, initialMaxRetries: 3 } });
  // Said by whoever waits for an answer.
  connection.on("error", () => undefined);
  const channel = await connection.createChannel();
  const depth = async (): Promise<number> => (await channel.checkQueue(CONSUMER)).messageCount;
  return {
    async reset() {
      await channel.deleteQueue(CONSUMER);
      await channel.assertExchange(STREAM, "topic");
      await channel.assertQueue(CONSUMER, QUORUM);
      await channel.assertQueue(`${CONSUMER}.dead`, QUORUM);
      await channel.bindQueue(CONSUMER, STREAM, "#");
    },
    arrived: depth,
    unread: depth,
    publisher: () => Promise.resolve(createRabbitmqPublisher({ connection })),
    subscriber: () => Promise.resolve(createRabbitmqSubscriber({ connection, queue: CONSUMER })),
    async rawPublisher(messages) {
      // No part of the API: a commit that this one is compared with may not have it.
      const { encodeForRabbitmq } = await import("../../src/brokers/rabbitmq/rabbitmq-envelope.ts");
      const { routeByStream } = await import("../../src/brokers/rabbitmq/rabbitmq-route.ts");
      const confirms = await connection.createConfirmChannel();
      const ready = messages.map((message) => ({
        ...routeByStream(message),
        ...encodeForRabbitmq(message, "native"),
      }));
      return (from, to) => {
        for (let i = from; i < to; i += 1) {
          const { exchange, routingKey, content, options } = ready[i]!;
          confirms.publish(exchange, routingKey, content, options);
        }
        return confirms.waitForConfirms();
      };
    },
    async rawConsumer(handle) {
      const consuming = await connection.createChannel();
      const gate = createGate(CONCURRENCY);
      await consuming.prefetch(PREFETCH);
      const { consumerTag } = await consuming.consume(CONSUMER, (message) => {
        if (message === null) return;
        const { content, properties } = message;
        void gate(async () => {
          await handle({ id: String(properties.messageId), body: content.toString() });
          consuming.ack(message);
        });
      });
      return async () => {
        await consuming.cancel(consumerTag);
        // RabbitMQ passes acknowledgements on to a quorum queue in parts, and forgets the last ones when the channel ends.
        await sleep(SETTLE_MS);
        await consuming.close();
      };
    },
    async [Symbol.asyncDispose]() {
      await connection.close();
    },
  };
}
