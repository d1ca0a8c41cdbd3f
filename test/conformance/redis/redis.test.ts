import { afterAll, describe } from "vitest";
import { publisherConformance, subscriberConformance } from "../../../src/testing/index.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startRedis } from "../../harness/start-redis.ts";
import { conformanceSuite } from "../conformance-suite.ts";
import {
  redisPublisherIoredis,
  redisPublisherNodeRedis,
  redisSubscriberIoredis,
  redisSubscriberNodeRedis,
} from "../targets.ts";
import { redisPublisherContext, redisSubscriberContext } from "./redis-context.ts";

const slot = await serverOrSkip("Redis", () => startRedis({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped)("Redis Streams", () => {
  conformanceSuite(redisPublisherIoredis, publisherConformance, () => redisPublisherContext("ioredis"));
  conformanceSuite(redisPublisherNodeRedis, publisherConformance, () => redisPublisherContext("node-redis"));
  conformanceSuite(redisSubscriberIoredis, subscriberConformance, () => redisSubscriberContext("ioredis"));
  conformanceSuite(redisSubscriberNodeRedis, subscriberConformance, () => redisSubscriberContext("node-redis"));
});
