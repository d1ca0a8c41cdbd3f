import { Redis } from "ioredis";
import { createSentinel } from "redis";
import { afterAll, describe, expect, it } from "vitest";
import { createRedisPublisher, createRedisSubscriber, type RedisClient } from "../../../src/brokers/redis/index.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type RedisSentinelGroup, startRedisSentinel } from "../../harness/start-redis-sentinel.ts";
import { isLong } from "../../support/is-long.ts";
import { type Numbered, outboxDatabase } from "../support/outbox-database.ts";

const KEYS = 20;
const FAILOVERS = isLong ? 2 : 1;

function clientOf(kind: "ioredis" | "node-redis", { name, sentinels }: RedisSentinelGroup): RedisClient {
  if (kind === "node-redis") return createSentinel({ name, sentinelRootNodes: [...sentinels] });
  return new Redis({ name, sentinels: [...sentinels], lazyConnect: true });
}

const slot = await serverOrSkip("Redis with Sentinel", startRedisSentinel);
afterAll(() => slot.stop());

describe.skipIf(slot.skipped || !hasPostgres())("Redis through Sentinel", () => {
  it.each(["ioredis", "node-redis"] as const)(
    "%s: failovers while messages flow lose, double and reorder nothing, and blame no message",
    { timeout: 180_000 },
    async (kind) => {
      const group = slot.server;
      const client = clientOf(kind, group);
      await using database = await outboxDatabase();
      const stream = `orders-${kind}`;
      const blamed: object[] = [];
      const blame = (event: { type: string }): void => {
        if (event.type === "retry" || event.type === "dead") blamed.push(event);
      };
      const publisher = createRedisPublisher({
        client,
        streamKey: () => stream,
        replicas: { count: 1, timeoutMs: 1000 },
      });
      const relay = createRelay({ store: database.store, name: "to-redis", publisher, maxAttempts: 2, onEvent: blame });
      const inbox = createInbox({ store: database.store, consumer: "effects" });
      await database.query("create table effect (id bigint generated always as identity, key text, n int)");
      inbox.on("changed", async (tx, { payload }) => {
        const { key, n } = payload as Numbered;
        await tx.query("insert into effect (key, n) values ($1, $2)", [key, n]);
      });
      const subscriber = createRedisSubscriber({
        client,
        streams: stream,
        declare: true,
        takeOverAfterMs: 3000,
        maxAttempts: 2,
        onEvent: blame,
      });
      await inbox.start(subscriber);
      await relay.start();
      let n = 0;
      const flowing = new AbortController();
      const writing = (async () => {
        while (!flowing.signal.aborted && n < 5000) {
          n++;
          await database.enqueue(Array.from({ length: KEYS }, (_, key) => ({ key: `k${key}`, n })));
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      })();
      const done = async (): Promise<number> => Number(await database.value("select count(*) from effect"));
      const more = async (): Promise<void> => {
        const before = await done();
        await until(async () => (await done()) > before + 10 * KEYS, { what: "effects", timeoutMs: 60_000 });
      };
      try {
        await more();
        for (let failover = 1; failover <= FAILOVERS; failover++) {
          const dead = await group.killMaster();
          await group.bringBack(dead);
          await more();
        }
        flowing.abort();
        await writing;
        await until(async () => (await done()) >= n * KEYS, {
          what: "all effects",
          timeoutMs: 60_000,
          intervalMs: 100,
        });
      } finally {
        flowing.abort();
        await writing;
        await relay.stop();
        await inbox.stop();
        await publisher.close?.();
      }
      expect(await done()).toBe(n * KEYS);
      const breaks = await database.query(`select key, n from (
        select key, n, lag(n, 1, 0) over (partition by key order by id) as before from effect
      ) t where n <> before + 1`);
      expect(breaks).toEqual([]);
      expect(blamed).toEqual([]);
    },
  );

  it.each(["ioredis", "node-redis"] as const)(
    "%s: says that no sentinel answers, and blames no message",
    async (kind) => {
      const client = clientOf(kind, { ...slot.server, sentinels: [{ host: "127.0.0.1", port: 1 }] });
      const publisher = createRedisPublisher({ client });
      const results = await publisher.publish([sample("orders", 1), sample("orders", 2)], new AbortController().signal);
      expect(results.map(({ status }) => status)).toEqual(["unavailable", "unavailable"]);
      expect(String((results[0] as { error: unknown }).error)).toMatch(/sentinel|ECONNREFUSED/i);
      await publisher.close?.();
    },
  );
});
