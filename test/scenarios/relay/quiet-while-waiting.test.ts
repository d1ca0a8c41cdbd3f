import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { UnavailableError } from "../../../src/core/errors.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type CountingPool, countingPool } from "../support/counting-pool.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

/** Statements per second that a relay may send while it can do nothing: polling every 50 ms, and looking after the lease. */
const AT_MOST = 60;

describe.skipIf(!hasPostgres())("a relay that can do nothing does little", () => {
  let database: OutboxDatabase;
  let pool: CountingPool;
  let publisher: RecordingPublisher;
  let relay: Relay;

  beforeEach(async () => {
    database = await outboxDatabase();
    pool = countingPool(database.pool);
    publisher = new RecordingPublisher();
    relay = createRelay({
      store: createPostgresStore({ client: pool.client }),
      name: "orders",
      publisher,
      backoff: { baseMs: 10, maxMs: 10 },
      maxAttempts: 1_000_000,
      onDead: "block",
      maintenance: false,
    });
    await relay.start();
  });
  afterEach(async () => {
    await relay.stop({ deadlineMs: 1000 });
    await database[Symbol.asyncDispose]();
  });

  async function statementsPerSecond(): Promise<number> {
    await new Promise((resolve) => setTimeout(resolve, 300));
    const before = pool.statements;
    await new Promise((resolve) => setTimeout(resolve, 1500));
    return (pool.statements - before) / 1.5;
  }

  async function parkOne(): Promise<void> {
    publisher.rule = ({ key }) => (key === "bad" ? { status: "failed", error: new Error("no") } : undefined);
    await database.enqueue(series("bad", 3));
    await until(async () => (await database.value("select count(*)::int from txbox.parked")) === 3, {
      what: "parking",
    });
  }

  it("idle", async () => {
    expect(await statementsPerSecond()).toBeLessThan(AT_MOST);
  });

  it("paused, with a failed message whose time has come", async () => {
    await parkOne();
    await database.store.admin.pause("orders");
    await until(() => relay.state().session?.paused === true, { what: "the pause" });
    expect(await statementsPerSecond()).toBeLessThan(AT_MOST);
  });

  it("with a broker that is out, and a failed message whose time has come", async () => {
    let out = false;
    publisher.before = ([first]) => {
      out ||= first?.key === "good";
      // Of a broker that is out, no message hears anything else: an answer to the failed one would end the outage.
      if (out) throw new UnavailableError("out");
    };
    await parkOne();
    await database.enqueue(series("good", 3));
    await until(() => out, { what: "the outage" });
    expect(await statementsPerSecond()).toBeLessThan(AT_MOST);
  });

  it("with a key that a dead letter blocks", async () => {
    publisher.rule = ({ key }) => (key === "bad" ? { status: "rejected", error: new Error("no") } : undefined);
    await database.enqueue(series("bad", 3));
    await until(async () => (await database.store.admin.dead({})).length === 1, { what: "the dead letter" });
    expect(await statementsPerSecond()).toBeLessThan(AT_MOST);
  });

  it("with a scheduled message whose cancellation is still open", async () => {
    await using canceller = await database.connect();
    const deliverAt = new Date(Date.now() + 500);
    await canceller.query("begin");
    await database.outbox.enqueue(canceller.client, { id: "a", stream: "s", type: "t", payload: 1, deliverAt });
    await canceller.query("commit");
    await canceller.query("begin");
    expect(await database.outbox.cancel(canceller.client, "a")).toBe(true);
    await new Promise((resolve) => setTimeout(resolve, 1700));
    expect(await statementsPerSecond()).toBeLessThan(AT_MOST);
  });

  it("beside another that owns half of the lanes", async () => {
    const other = createRelay({ store: database.store, name: "orders", publisher, maintenance: false });
    await other.start();
    try {
      await until(() => relay.state().session?.lanes === 32, { what: "half of the lanes" });
      expect(await statementsPerSecond()).toBeLessThan(AT_MOST);
    } finally {
      await other.stop();
    }
  });
});
