import { afterAll, describe, expect, it } from "vitest";
import { createRedisPublisher, createRedisSubscriber } from "../../../src/brokers/redis/index.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startRedis } from "../../harness/start-redis.ts";
import { redisClient, redisProbe } from "../../support/redis-clients.ts";
import { OUTAGE_MS, surviveOutage } from "../support/broker-outage.ts";

const CLIENTS = OUTAGE_MS > 2000 ? (["ioredis", "node-redis"] as const) : (["ioredis"] as const);

const slot = await serverOrSkip("Redis", () => startRedis({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped || !hasPostgres())(`Redis killed for ${OUTAGE_MS / 1000} s while messages flow`, () => {
  it.each(CLIENTS)("%s loses, doubles and reorders nothing, and blames no message", async (kind) => {
    const { server } = slot;
    await using probe = await redisProbe(server.url);
    await probe.command("FLUSHALL");
    const client = redisClient(kind, server.url);
    await surviveOutage({
      publisher: createRedisPublisher({ client }),
      subscriber: (options) => createRedisSubscriber({ client, streams: "orders", declare: true, ...options }),
      kill: () => server.kill(),
      comeBack: () => server.start(),
    });
    expect(await probe.command("XPENDING", "orders", "effects")).toEqual([0, null, null, null]);
    expect(await probe.command("EXISTS", "orders.dead")).toBe(0);
  });
});
