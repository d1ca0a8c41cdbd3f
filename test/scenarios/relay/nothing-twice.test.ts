import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { UnavailableError } from "../../../src/core/errors.ts";
import { publishEach } from "../../../src/core/publish-each.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { interceptingPool } from "../support/intercepting-pool.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

describe.skipIf(!hasPostgres())("What is sent once", () => {
  let database: OutboxDatabase;
  let relay: Relay | undefined;

  beforeEach(async () => {
    database = await outboxDatabase();
  });
  afterEach(async () => {
    await relay?.stop({ deadlineMs: 100 });
    relay = undefined;
    await database.close();
  });

  it("has time between attempts, though it had waited for a route before", async () => {
    let calls = 0;
    const publisher = publishEach(() => {
      if (calls++ === 0) throw new UnavailableError("full", { route: "queue", retryAfterMs: 50 });
      throw new Error("no");
    });
    const backoff = { baseMs: 3_600_000, maxMs: 3_600_000 };
    relay = createRelay({ store: database.store, publisher, name: "r", maxAttempts: 20, backoff });
    await relay.start();
    await database.enqueue([{ key: "a", n: 1 }]);
    await until(() => calls >= 2, { what: "the second attempt" });
    await sleep(500);
    expect(calls).toBe(2);
  });

  it("is not sent again because the read of the next batch failed", async () => {
    const pool = interceptingPool(database.pool);
    const store = createPostgresStore({ client: pool.client });
    const publisher = new RecordingPublisher();
    publisher.before = () => sleep(20);
    relay = createRelay({ store, publisher, name: "r", batchSize: 10 });
    await relay.start();
    const cut = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    let failed = false;
    const first = pool.intercept(/copy \(/, () => Promise.resolve());
    void first.then(() => pool.intercept(/copy \(/, () => Promise.reject(cut))).then(() => (failed = true));
    await database.enqueue(series("a", 200));
    await until(() => new Set(publisher.sent.map(({ n }) => n)).size === 200, { what: "all of them" });
    await sleep(300);
    expect(failed).toBe(true);
    expect(publisher.sent.length).toBe(200);
  });

  it("is not sent again beside an attempt that takes long, because of a command", async () => {
    let slow = 0;
    let underWay = 0;
    let most = 0;
    const publisher = publishEach(async (message) => {
      if (message.key === "bad") throw Object.assign(new Error("never"), { code: "permanent" });
      if (message.key !== "slow") return;
      slow++;
      most = Math.max(most, ++underWay);
      await sleep(6000);
      underWay--;
    });
    relay = createRelay({ store: database.store, publisher, name: "r" });
    await relay.start();
    await database.enqueue([{ key: "bad", n: 1 }]);
    await until(async () => (await database.store.admin.dead({})).length === 1, { what: "a dead letter" });
    await database.enqueue([{ key: "slow", n: 1 }]);
    await until(() => slow === 1, { what: "the slow attempt" });
    await database.store.admin.discard({ all: true });
    const isParked = () => database.value("select count(*)::int from txbox.parked");
    await sleep(4000);
    expect({ slow, most }).toEqual({ slow: 1, most: 1 });
    // Its key is free again once it is through.
    await database.enqueue([{ key: "slow", n: 2 }]);
    await until(() => slow === 2, { what: "the next of its key" });
    await until(async () => (await isParked()) === 1, { what: "only that one parked" });
    expect(most).toBe(1);
  });
});
