import { afterAll, describe } from "vitest";
import { publisherConformance, subscriberConformance } from "../../../src/testing/index.ts";
import { serverOrSkip, startKafka } from "../../harness/index.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import { kafkaPublisher, kafkaSubscriber } from "../targets.ts";
import { kafkaPublisherContext } from "./kafka-publisher-context.ts";
import { kafkaSubscriberContext } from "./kafka-subscriber-context.ts";

const slot = await serverOrSkip("Kafka", () => startKafka({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped)("Kafka", () => {
  conformanceSuite(kafkaPublisher, publisherConformance, () => kafkaPublisherContext(slot.server), {
    alone: ["outage", "hanging"],
  });
  conformanceSuite(kafkaSubscriber, subscriberConformance, () => kafkaSubscriberContext(slot.server), {
    alone: ["restart"],
  });
});
