import { describe } from "vitest";
import { publisherConformance, subscriberConformance } from "../../../src/testing/index.ts";
import { startNats } from "../../harness/start-nats.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import { natsPublisher, natsSubscriber } from "../targets.ts";
import { natsPublisherContext, natsSubscriberContext } from "./nats-context.ts";

// Every case has a server of its own, to kill it; this one only tells whether there is any.
const slot = await serverOrSkip("NATS", () => startNats({ owned: true }));
await slot.stop();

describe.skipIf(slot.skipped)("NATS JetStream", () => {
  conformanceSuite(natsPublisher, publisherConformance, natsPublisherContext);
  conformanceSuite(natsSubscriber, subscriberConformance, natsSubscriberContext);
});
