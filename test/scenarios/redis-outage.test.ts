import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it } from "vitest";
import { createRedisPublisher, createRedisSubscriber } from "../../src/brokers/redis/index.ts";
import { createInbox } from "../../src/inbox/inbox.ts";
import { createRelay } from "../../src/relay/relay.ts";
import { until } from "../harness/deadline.ts";
import { serverOrSkip } from "../harness/server-or-skip.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startRedis } from "../harness/start-redis.ts";
import { redisClient, redisProbe } from "../support/redis-clients.ts";
import { outboxDatabase } from "./support/outbox-database.ts";

const LONG = process.env["TXBOX_LONG"] === "1";
const OUTAGE_MS = LONG ? 10_000 : 2000;
const CLIENTS = LONG ? (["ioredis", "node-redis"] as const) : (["ioredis"] as const);
const KEYS = 200;
const EACH = 100;
const TOTAL = KEYS * EACH;

const slot = await serverOrSkip("Redis", () => startRedis({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped || !hasPostgres())(`Redis, killed for ${OUTAGE_MS / 1000} s while messages flow`, () => {
  it.each(CLIENTS)("%s: nothing lost, doubled or out of order", async (kind) => {
    const server = slot.server;
    await using probe = await redisProbe(server.url);
    await probe.command("FLUSHALL");
    await using database = await outboxDatabase();
    await database.query("create table effect (id bigint generated always as identity, key text, n int)");
    const client = redisClient(kind, server.url);
    const events: string[] = [];
    const note = ({ type }: { type: string }): void => void events.push(type);

    const publisher = createRedisPublisher({ client });
    const relay = createRelay({ store: database.store, name: "to-redis", publisher, maxAttempts: 3, onEvent: note });
    const inbox = createInbox({ store: database.store, consumer: "effects" });
    inbox.on("changed", async (tx, { payload }) => {
      const { key, n } = payload as { key: string; n: number };
      await tx.query("insert into effect (key, n) values ($1, $2)", [key, n]);
    });
    const subscriber = createRedisSubscriber({
      client,
      streams: "orders",
      declare: true,
      maxAttempts: 3,
      onEvent: note,
    });
    const effects = async (): Promise<number> => Number(await database.value("select count(*) from effect"));

    await inbox.start(subscriber);
    await relay.start();
    try {
      const enqueuing = (async () => {
        for (let n = 1; n <= EACH; n += 5) await database.enqueue(rounds(n, 5));
      })();
      await until(async () => (await effects()) > TOTAL / 10, { what: "the flow", timeoutMs: 30_000 });
      await server.kill();
      await sleep(OUTAGE_MS);
      await server.start();
      await enqueuing;
      await until(async () => (await effects()) >= TOTAL, { what: "all effects", timeoutMs: 60_000, intervalMs: 100 });
      await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
    } finally {
      await relay.stop();
      await inbox.stop();
      await publisher.close?.();
    }
    expect(events).toContain("outage");
    expect(events.filter((type) => type === "retry" || type === "dead")).toEqual([]);
    expect(await effects()).toBe(TOTAL);
    const breaks = await database.query(
      "select key, n from (select key, n, lag(n, 1, 0) over (partition by key order by id) as before from effect) t where n <> before + 1",
    );
    expect(breaks).toEqual([]);
    expect(
      await database.value("select count(*)::int from txbox.receipt where attempts > 1 or status <> 'processed'"),
    ).toBe(0);
    expect(await probe.command("XPENDING", "orders", "effects")).toEqual([0, null, null, null]);
    expect(await probe.command("EXISTS", "orders.dead")).toBe(0);
  });
});

/** `count` messages of every key, from the n-th. */
function rounds(from: number, count: number): { key: string; n: number }[] {
  return Array.from({ length: KEYS * count }, (_, i) => ({ key: `k${i % KEYS}`, n: from + Math.floor(i / KEYS) }));
}
