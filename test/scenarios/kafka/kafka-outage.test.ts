import { afterAll, describe, it } from "vitest";
import { createKafkaPublisher, createKafkaSubscriber } from "../../../src/brokers/kafka/index.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startKafka } from "../../harness/start-kafka.ts";
import { createTopic, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";
import { OUTAGE_MS, surviveOutage } from "../support/broker-outage.ts";

const slot = await serverOrSkip("Kafka", () => startKafka({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped || !hasPostgres())(`Kafka killed for ${OUTAGE_MS / 1000} s while messages flow`, () => {
  it("loses, doubles and reorders nothing, and blames no message", async () => {
    const { server } = slot;
    const { brokers } = server;
    await createTopic(brokers, "orders", 6);
    await createTopic(brokers, "orders.dead", 1);
    const [consumer, producer] = [openConsumer(brokers, "effects"), openProducer(brokers)];
    try {
      await surviveOutage({
        publisher: createKafkaPublisher({ producer: openProducer(brokers) }),
        subscriber: (options) => createKafkaSubscriber({ consumer, producer, topics: ["orders"], ...options }),
        kill: () => server.kill(),
        comeBack: () => server.restart(),
      });
    } finally {
      await Promise.all([consumer.close(), producer.close()]);
    }
  });
});
