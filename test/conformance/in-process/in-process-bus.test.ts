import { describe } from "vitest";
import { publisherConformance, subscriberConformance } from "../../../src/testing/index.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import { inProcessPublisher, inProcessSubscriber } from "../targets.ts";
import { inProcessPublisherContext, inProcessSubscriberContext } from "./in-process-context.ts";

describe("in-process bus", () => {
  conformanceSuite(inProcessPublisher, publisherConformance, inProcessPublisherContext);
  conformanceSuite(inProcessSubscriber, subscriberConformance, inProcessSubscriberContext);
});
