import { afterAll, describe, it } from "vitest";
import { runConformance, subscriberConformance } from "../../../src/testing/index.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { startRedis } from "../../harness/start-redis.ts";
import { redisSubscriberNodeRedis } from "../targets.ts";
import { redisSubscriberContext } from "./redis-context.ts";

const slot = await serverOrSkip("Redis", () => startRedis({ owned: true }));
afterAll(() => slot.stop());

// With one process at a time, as in these cases, keys keep their order here too.
describe.skipIf(slot.skipped).concurrent("Redis Streams, shared by the processes of a group", () => {
  runConformance(subscriberConformance, {
    features: redisSubscriberNodeRedis.features,
    context: () => redisSubscriberContext("node-redis", { ordered: false }),
    it(title, run) {
      // oxlint-disable-next-line vitest/valid-title -- titles are data
      it(title, run);
    },
    skip(title, missing) {
      throw new Error(`${title} needs ${missing.join(", ")}`);
    },
  });
});
