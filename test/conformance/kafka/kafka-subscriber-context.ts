import { createKafkaSubscriber } from "../../../src/brokers/kafka/index.ts";
import { headersOf, encodeMessage } from "../../../src/brokers/kafka/kafka-envelope.ts";
import type { Subscriber } from "../../../src/core/contracts.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { CONFORMANCE_ATTEMPTS, type SubscriberContext } from "../../../src/testing/index.ts";
import type { KafkaServer } from "../../harness/index.ts";
import { ForeignProducer, TopicReader } from "../../support/kafka/foreign-client.ts";
import { createTopic, cutConnections, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";

export async function kafkaSubscriberContext(server: KafkaServer): Promise<SubscriberContext & AsyncDisposable> {
  const { brokers } = server;
  const stream = `subscribe-${uuidv7()}`;
  await createTopic(brokers, stream);
  await createTopic(brokers, `${stream}.dead`, 1);
  const foreign = new ForeignProducer(brokers);
  const opened: { subscriber: Subscriber; close: () => Promise<void>; cut: () => void }[] = [];
  let dead: TopicReader | undefined;
  return {
    stream,
    subscriber(limits) {
      const consumer = openConsumer(brokers, `group-${stream}`);
      const producer = openProducer(brokers);
      const subscriber = createKafkaSubscriber({
        consumer,
        producer,
        topics: [stream],
        maxAttempts: CONFORMANCE_ATTEMPTS,
        backoff: { baseMs: 5, maxMs: 20 },
        sessionTimeoutMs: 3000,
        ...limits,
      });
      opened.push({
        subscriber,
        close: async () => void (await Promise.all([consumer.close(), producer.close()])),
        cut: () => cutConnections(consumer),
      });
      return subscriber;
    },
    async send(messages) {
      const records = messages.map((message) => {
        const { key, value, headers } = encodeMessage(message, stream, "native", undefined);
        const named = Object.fromEntries([...headers].map(([name, bytes]) => [name.toString(), bytes]));
        return { key: key ?? null, value, headers: named };
      });
      await foreign.send(stream, records);
    },
    async sendForeign(body, headers = {}) {
      const bytes = headersOf(headers);
      const named = Object.fromEntries([...bytes].map(([name, value]) => [name.toString(), value]));
      await foreign.send(stream, [{ value: Buffer.from(body), headers: named }]);
    },
    disconnect: async () => opened.forEach(({ cut }) => cut()),
    restart: () => server.restart(),
    async deadLetters(count) {
      dead ??= new TopicReader(brokers, `${stream}.dead`);
      return (await dead.until(count)).map(({ value, headers }) => ({
        body: value ?? new Uint8Array(0),
        headers: Object.fromEntries(headers.map(([name, bytes]) => [String(name), bytes?.toString()])),
      }));
    },
    async [Symbol.asyncDispose]() {
      for (const { subscriber, close } of opened) {
        await subscriber.stop();
        await close();
      }
      await foreign[Symbol.asyncDispose]();
      await dead?.[Symbol.asyncDispose]();
    },
  };
}
