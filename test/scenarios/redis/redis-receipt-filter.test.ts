import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRedisReceiptFilter, type RedisReceiptFilter } from "../../../src/brokers/redis/index.ts";
import type { IncomingMessage } from "../../../src/core/message.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until, withDeadline } from "../../harness/deadline.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startRedis } from "../../harness/start-redis.ts";
import { redisClient, redisProbe } from "../../support/redis-clients.ts";
import { outboxDatabase, openPool, type OutboxDatabase } from "../support/outbox-database.ts";

const slot = await serverOrSkip("Redis", () => startRedis({ owned: true, durable: false }));
afterAll(() => slot.stop());

const message = (n: number): IncomingMessage => ({
  id: `m-${n}`,
  type: "changed",
  body: JSON.stringify({ n }),
  headers: {},
});

describe.skipIf(slot.skipped || !hasPostgres())("the Redis receipt filter", () => {
  let database: OutboxDatabase;
  let filter: RedisReceiptFilter;

  beforeEach(async () => {
    await slot.server.restart();
    database = await outboxDatabase();
    await database.query("create table effect (n int)");
    filter = createRedisReceiptFilter({ client: redisClient("node-redis", slot.server.url), timeoutMs: 1000 });
  });
  afterEach(async () => {
    await filter.close();
    await database[Symbol.asyncDispose]();
  });

  function inboxWith(store = database.store) {
    const inbox = createInbox({ store, consumer: "effects", filter });
    return inbox.on("changed", async (tx, { payload }) => {
      await tx.query("insert into effect values ($1)", [(payload as { n: number }).n]);
    });
  }

  const effects = async (): Promise<number[]> =>
    (await database.query<{ n: number }>("select n from effect order by n")).map(({ n }) => n);

  async function untilRemembered(count: number): Promise<void> {
    await using probe = await redisProbe(slot.server.url);
    await until(async () => ((await probe.command("KEYS", "txbox:receipt:*")) as unknown[]).length >= count, {
      what: `${count} remembered receipts`,
    });
  }

  it("knows consumers apart whose names and ids make the same text together", async () => {
    const receipt = { type: "changed", correlationId: null };
    filter.remember({ ...receipt, consumer: "a:processed", messageId: "m" }, "processed");
    await untilRemembered(1);
    expect(await filter.seen({ ...receipt, consumer: "a:processed", messageId: "m" }, "processed")).toBe(true);
    expect(await filter.seen({ ...receipt, consumer: "a", messageId: "processed:m" }, "processed")).toBe(false);
  });

  it("answers for duplicates without the database", async () => {
    const pool = openPool(database.url);
    const inbox = inboxWith(createPostgresStore({ client: pool }));
    expect(await inbox.handle(message(1))).toBe("processed");
    await untilRemembered(1);
    await pool.end();
    // There is no database any more: a question to it would fail.
    expect(await inbox.handle(message(1))).toBe("duplicate");
    await expect(inbox.handle(message(2))).rejects.toThrow();
    expect(await effects()).toEqual([1]);
  });

  it("asks once for many messages at a time", async () => {
    await using probe = await redisProbe(slot.server.url);
    const inbox = inboxWith();
    await Promise.all(Array.from({ length: 100 }, (_, n) => inbox.handle(message(n))));
    await untilRemembered(100);
    await probe.command("CONFIG", "RESETSTAT");
    const again = await Promise.all(Array.from({ length: 100 }, (_, n) => inbox.handle(message(n))));
    expect(again).toEqual(again.map(() => "duplicate"));
    const stats = String(await probe.command("INFO", "commandstats"));
    expect(/cmdstat_mget:calls=(\d+)/.exec(stats)?.[1]).toBe("1");
  });

  it("knows nothing of what was rolled back", async () => {
    const inbox = createInbox({ store: database.store, consumer: "effects", filter });
    let fails = true;
    inbox.on("changed", async (tx) => {
      await tx.query("insert into effect values (1)");
      if (fails) throw new Error("not yet");
    });
    await expect(inbox.handle(message(1))).rejects.toThrow("not yet");
    fails = false;
    expect(await inbox.handle(message(1))).toBe("processed");
    expect(await effects()).toEqual([1]);
  });

  it("leaves it to the ledger when Redis has forgotten", async () => {
    await using probe = await redisProbe(slot.server.url);
    const inbox = inboxWith();
    await inbox.handle(message(1));
    await untilRemembered(1);
    await probe.command("FLUSHALL");
    expect(await inbox.handle(message(1))).toBe("duplicate");
    expect(await effects()).toEqual([1]);
  });

  it("keeps consumers apart", async () => {
    const inbox = inboxWith();
    await inbox.handle(message(1));
    await untilRemembered(1);
    const other = createInbox({ store: database.store, consumer: "others", filter });
    other.on("changed", async () => undefined);
    expect(await other.handle(message(1))).toBe("processed");
  });

  it("does not keep a stored message from being handled", async () => {
    const inbox = createInbox({ store: database.store, consumer: "effects", mode: "stored", filter });
    inbox.on("changed", async (tx) => void (await tx.query("insert into effect values (1)")));
    expect(await inbox.handle(message(1))).toBe("stored");
    await untilRemembered(1);
    expect(await inbox.handle(message(1))).toBe("duplicate");
    const publisher = inbox.storedPublisher();
    const relay = createRelay({ store: database.store, name: "local", streams: ["inbox.effects"], publisher });
    await relay.start();
    await until(async () => (await effects()).length === 1, { what: "the effect" });
    await relay.stop();
  });

  it("costs neither failures nor doubles when Redis is killed in between", async () => {
    const inbox = inboxWith();
    const handle = async (from: number, to: number): Promise<string[]> => {
      const handled: string[] = [];
      for (let n = from; n < to; n++) handled.push(await inbox.handle(message(n)));
      return handled;
    };
    expect(new Set(await handle(0, 50))).toEqual(new Set(["processed"]));
    await slot.server.kill();
    expect(new Set(await handle(25, 50))).toEqual(new Set(["duplicate"]));
    expect(new Set(await handle(50, 100))).toEqual(new Set(["processed"]));
    await slot.server.start();
    expect(new Set(await handle(0, 100))).toEqual(new Set(["duplicate"]));
    expect(await effects()).toEqual(Array.from({ length: 100 }, (_, n) => n));
    // It has come back by itself.
    await until(
      async () => {
        await inbox.handle(message(1000 + Math.floor(Math.random() * 1e6)));
        await sleep(20);
        await using probe = await redisProbe(slot.server.url);
        return ((await probe.command("KEYS", "txbox:receipt:*")) as unknown[]).length > 0;
      },
      { what: "remembering again" },
    );
  });

  it("waits no longer for a Redis that hangs than it was told", async () => {
    const quick = createRedisReceiptFilter({ client: redisClient("ioredis", slot.server.url), timeoutMs: 50 });
    const receipt = { consumer: "c", messageId: "m", type: "t", correlationId: null };
    await until(() => quick.seen(receipt, "processed").then(() => true), { what: "a first answer" });
    await sleep(1100);
    slot.server.pause();
    try {
      const began = performance.now();
      // The same time, as it goes by in this process.
      const told = sleep(50).then(() => performance.now() - began);
      expect(await withDeadline(quick.seen(receipt, "processed"), 10_000, "an answer")).toBe(false);
      expect(performance.now() - began).toBeLessThan((await told) + 500);
      const then = performance.now();
      for (let i = 0; i < 100; i++) expect(await quick.seen(receipt, "processed")).toBe(false);
      // Each of them would wait for 50 ms, were it to ask.
      expect(performance.now() - then).toBeLessThan((100 * 50) / 2);
    } finally {
      slot.server.resume();
      await quick.close();
    }
  });

  it("forgets after its time", async () => {
    const brief = createRedisReceiptFilter({
      client: redisClient("ioredis", slot.server.url),
      ttlMs: 200,
      timeoutMs: 1000,
    });
    const receipt = { consumer: "c", messageId: "m", type: "t", correlationId: null };
    brief.remember(receipt, "processed");
    await until(() => brief.seen(receipt, "processed"), { what: "remembering", intervalMs: 5 });
    expect(await brief.seen(receipt, "received")).toBe(false);
    await until(async () => !(await brief.seen(receipt, "processed")), { what: "forgetting" });
    await brief.close();
  });
});
