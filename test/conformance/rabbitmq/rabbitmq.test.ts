import { afterAll, describe } from "vitest";
import { publisherConformance, subscriberConformance } from "../../../src/testing/index.ts";
import { serverOrSkip, startRabbitmq } from "../../harness/index.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import { rabbitmqPublisher, rabbitmqSubscriber } from "../targets.ts";
import { rabbitmqPublisherContext, rabbitmqSubscriberContext } from "./rabbitmq-context.ts";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped)("RabbitMQ", () => {
  conformanceSuite(rabbitmqPublisher, publisherConformance, (alone) => rabbitmqPublisherContext(slot.server, alone), {
    alone: ["outage", "hanging"],
  });
  conformanceSuite(
    rabbitmqSubscriber,
    subscriberConformance,
    (alone) => rabbitmqSubscriberContext(slot.server, alone),
    {
      alone: ["restart"],
    },
  );
});
