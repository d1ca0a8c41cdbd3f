import { createKafkaPublisher } from "../../../src/brokers/kafka/index.ts";
import { openRecord } from "../../../src/brokers/kafka/kafka-envelope.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import type { PublisherContext } from "../../../src/testing/index.ts";
import type { KafkaServer } from "../../harness/index.ts";
import { TopicReader } from "../../support/kafka/foreign-client.ts";
import { createTopic, cutConnections, openProducer } from "../../support/kafka/kafka-clients.ts";
import { RefusingProducer } from "./refusing-producer.ts";

export async function kafkaPublisherContext(server: KafkaServer): Promise<PublisherContext & AsyncDisposable> {
  const stream = `publish-${uuidv7()}`;
  const other = `other-${stream}`;
  for (const topic of [stream, other]) await createTopic(server.brokers, topic);
  const real = openProducer(server.brokers);
  const refusing = new RefusingProducer(real);
  const publisher = createKafkaPublisher({ producer: refusing });
  const cloudProducer = openProducer(server.brokers);
  let reader: TopicReader | undefined;
  let otherReader: TopicReader | undefined;
  return {
    publisher,
    cloudEvents: createKafkaPublisher({ producer: cloudProducer, envelope: "cloudevents", source: "/tests" }),
    stream,
    async contentTypes(count) {
      reader ??= new TopicReader(server.brokers, stream);
      const named = (await reader.until(count)).map(({ headers }) =>
        headers.find(([name]) => String(name) === "content-type"),
      );
      return named.map((header) => header?.[1]?.toString());
    },
    async arrived(count) {
      reader ??= new TopicReader(server.brokers, stream);
      return (await reader.until(count)).map(openRecord);
    },
    route: {
      stream: other,
      goOut: async () => void refusing.lame.add(other),
      comeBack: async () => void refusing.lame.delete(other),
      async arrived(count) {
        otherReader ??= new TopicReader(server.brokers, other);
        return (await otherReader.until(count)).map(openRecord);
      },
    },
    refuse: async (id, how) => refusing.refuse(id, how),
    oversized: () => Buffer.alloc(2_000_000, "x"),
    unroutable: () => `missing-${stream}`,
    goDown: () => server.kill(),
    comeBack: () => server.restart(),
    disconnect: async () => cutConnections(real),
    async hang() {
      server.pause();
      return async () => server.resume();
    },
    async [Symbol.asyncDispose]() {
      server.resume();
      await publisher.close?.();
      await cloudProducer.close();
      await reader?.[Symbol.asyncDispose]();
      await otherReader?.[Symbol.asyncDispose]();
    },
  };
}
