import * as client from "prom-client";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Publisher } from "../../../src/core/contracts.ts";
import { PermanentError } from "../../../src/core/errors.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { watchStore, type Alert } from "../../../src/observability/watch-store.ts";
import { collectFigures, collectMetrics } from "../../../src/observability/prometheus/index.ts";
import { publishEach } from "../../../src/core/publish-each.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, series, type OutboxDatabase } from "../support/outbox-database.ts";

/** Collects both kinds into one registry; what a metric with these labels shows. */
function collecting(database: OutboxDatabase) {
  const registry = new client.Registry();
  const metrics = collectMetrics({ client, registry });
  const figures = collectFigures({ client, registry, store: database.store, everyMs: 0 });
  onTestFinished(() => {
    metrics.end();
    figures.end();
  });
  return async (series: string): Promise<number | undefined> => {
    const line = (await registry.metrics()).split("\n").find((one) => one.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length + 1));
  };
}

describe.skipIf(!hasPostgres())("metrics of a process and of the store", () => {
  let database: OutboxDatabase;
  beforeAll(async () => {
    database = await outboxDatabase();
  });
  afterAll(() => database?.[Symbol.asyncDispose]());

  test("say what became of each message of a relay", async () => {
    const show = collecting(database);
    const { store, outbox, pool } = database;
    await database.enqueue(series("good", 20));
    const connection = await pool.connect();
    await connection.query("begin");
    await outbox.enqueue(connection, [
      { stream: "other", type: "fails", key: "f", payload: 1 },
      { stream: "other", type: "dies", key: "d", payload: 1 },
      { stream: "other", type: "works", key: "f", payload: 1 },
    ]);
    await connection.query("commit");
    connection.release();
    expect(await show('outbox_new_total{stream="orders"}')).toBe(20);
    expect(await show('outbox_new_total{stream="other"}')).toBe(3);
    expect(await show('outbox_unread_oldest_age_seconds{stream="orders"}')).toBeGreaterThanOrEqual(0);

    const publisher = publishEach(async ({ type }) => {
      if (type === "fails") throw new Error("later");
      if (type === "dies") throw new PermanentError("never");
    });
    const relay = createRelay({ store, name: "r", publisher, backoff: { baseMs: 60_000, maxMs: 60_000 } });
    expect(await relay.drainOnce()).toMatchObject({ published: 20, retried: 1, dead: 1 });
    expect(await show('outbox_done_total{relay="r"}')).toBe(20);
    expect(await show('outbox_failed_total{relay="r"}')).toBe(1);
    expect(await show('outbox_dlq_total{relay="r"}')).toBe(1);
    expect(await show('outbox_publish_attempts_total{relay="r",result="published"}')).toBe(20);
    expect(await show('outbox_publish_attempts_total{relay="r",result="failed"}')).toBe(1);
    expect(await show('outbox_publish_attempts_total{relay="r",result="rejected"}')).toBe(1);
    expect(await show('outbox_processing_inflight{relay="r"}')).toBe(0);
    // The one that failed, and the one behind it.
    expect(await show('outbox_pending_records{relay="r"}')).toBe(2);
    expect(await show('outbox_parked_records{relay="r"}')).toBe(2);
    expect(await show('outbox_blocked_keys{relay="r"}')).toBe(1);
    expect(await show('outbox_dead_records{relay="r"}')).toBe(1);
    expect(await show('outbox_lag_seconds{relay="r"}')).toBeGreaterThan(0);
    expect(await show('outbox_unread_oldest_age_seconds{stream="orders"}')).toBeUndefined();
  });

  test("count a message that takes long as in hand until it has ended", async () => {
    await using own = await outboxDatabase();
    const show = collecting(own);
    await own.enqueue([...series("slow", 1), ...series("quick", 2)]);
    const gate = Promise.withResolvers<void>();
    const publisher: Publisher = {
      keepsKeyOrder: true,
      async publish(messages, _, progress) {
        const slow = messages.findIndex(({ key }) => key === "slow");
        for (const index of messages.keys()) {
          progress?.onResult?.(index, { status: index === slow ? "running" : "published" });
        }
        if (slow !== -1) await gate.promise;
        return messages.map(() => ({ status: "published" }));
      },
    };
    const drained = createRelay({ store: own.store, name: "long", publisher }).drainOnce();
    const published = 'outbox_publish_attempts_total{relay="long",result="published"}';
    await until(async () => (await show(published)) === 2, { what: "two that are quick", timeoutMs: 10_000 });
    expect(await show('outbox_processing_inflight{relay="long"}')).toBe(1);
    gate.resolve();
    expect(await drained).toMatchObject({ published: 3 });
    expect(await show('outbox_processing_inflight{relay="long"}')).toBe(0);
    expect(await show(published)).toBe(3);
    expect(await show('outbox_done_total{relay="long"}')).toBe(3);
  });

  test("say what became of each message of an inbox, inline and stored", async () => {
    const show = collecting(database);
    const { store } = database;
    const message = (id: string, type: string) => ({ id, type, headers: {}, body: "{}", source: "s" });
    const inline = createInbox({ store, consumer: "inline" }).on("works", async () => undefined);
    inline.on("fails", async () => {
      throw new Error("no");
    });
    await inline.handle(message("1", "works"));
    await inline.handle(message("1", "works"));
    await expect(inline.handle(message("2", "fails"))).rejects.toThrow("no");
    await inline.handle(message("3", "unknown"));
    expect(await show('inbox_new_total{consumer="inline"}')).toBe(2);
    expect(await show('inbox_done_total{consumer="inline"}')).toBe(1);
    expect(await show('inbox_failed_total{consumer="inline"}')).toBe(1);
    for (const result of ["processed", "duplicate", "failed", "skipped"]) {
      expect(await show(`inbox_publish_attempts_total{consumer="inline",result="${result}"}`), result).toBe(1);
    }
    expect(await show('inbox_failed_records{consumer="inline"}')).toBe(1);

    const stored = createInbox({ store, consumer: "stored", mode: "stored" }).on("works", async () => undefined);
    stored.on("dies", async () => {
      throw new PermanentError("never");
    });
    await stored.handle(message("4", "works"));
    await stored.handle(message("5", "dies"));
    const relay = createRelay({
      store,
      name: "local",
      streams: ["inbox.stored"],
      publisher: stored.storedPublisher(),
    });
    expect(await show('inbox_new_total{consumer="stored"}')).toBe(2);
    expect(await show('inbox_done_total{consumer="stored"}')).toBeUndefined();
    expect(await relay.drainOnce()).toMatchObject({ published: 1, dead: 1 });
    expect(await show('inbox_done_total{consumer="stored"}')).toBe(1);
    expect(await show('inbox_dlq_total{consumer="stored"}')).toBe(1);
    expect(await show('inbox_dead_records{consumer="stored"}')).toBe(1);
    expect(await show('inbox_pending_records{consumer="stored"}')).toBe(0);
    expect(await show('inbox_processing_inflight{consumer="stored"}')).toBe(0);
  });

  test("alerts of watchStore begin and end on a real store", async () => {
    await using own = await outboxDatabase();
    const told: Alert[] = [];
    await using _watch = watchStore({
      store: own.store,
      everyMs: 50,
      maxAgeMs: 300,
      onAlert: (alert) => told.push(alert),
    });
    await own.enqueue(series("a", 3));
    const relay = createRelay({ store: own.store, name: "r", publisher: publishEach(async () => undefined) });
    const has = (name: string, state: string) => () =>
      told.some((alert) => alert.name === name && alert.state === state);
    await until(has("unread_stream", "firing"), { what: "a stream without a relay", timeoutMs: 10_000 });
    await relay.drainOnce();
    await until(has("unread_stream", "over"), { what: "a stream with a relay", timeoutMs: 10_000 });
    await own.enqueue(series("a", 3));
    await until(has("lag", "firing"), { what: "lag", timeoutMs: 10_000 });
    await relay.drainOnce();
    await until(has("lag", "over"), { what: "the end of the lag", timeoutMs: 10_000 });
    expect(told.filter(({ name }) => name === "lag").map(({ state, relay: of }) => [of, state])).toEqual([
      ["r", "firing"],
      ["r", "over"],
    ]);
  });
});
