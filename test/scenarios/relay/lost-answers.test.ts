import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { type FlakyPool, flakyPool } from "../support/flaky-pool.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

/** The server has done what it was asked, and the answer is lost: the worst moment for a connection to break. */
const STATEMENTS: readonly [what: string, pattern: RegExp][] = [
  ["opening a window", /set\s+cur = pg_catalog\.pg_current_snapshot/],
  ["settling", /commit_mode from c/],
  ["settling a batch in the middle of a window", /from "txbox"\."settle_once"/],
  ["settling the end of a window and opening the next", /news as materialized/],
  ["settling with a failed message", /insert into "txbox"\."blocked"/],
  ["reading a page", /copy \(.*pg_visible_in_snapshot\(xid/s],
  ["reading parked messages", /cross join lateral/],
  ["joining, or loading anew", /insert into "txbox"\."member"/],
  ["renewing the lease", /renewed as \(update "txbox"\."cursor"/],
  ["looking around", /'scheduledInMs'/],
  ["taking over", /skip locked/],
  ["loading the lanes", /array_agg\(l\.lane/],
  ["loading blocked keys", /date_part\('epoch', b\.next_at/],
  ["carrying out a command", /update "txbox"\."dead" d set command = null/],
];

describe.skipIf(!hasPostgres())("an answer of the database that is lost", () => {
  let database: OutboxDatabase;
  let flaky: FlakyPool;
  let publisher: RecordingPublisher;
  let relay: Relay;

  beforeEach(async () => {
    database = await outboxDatabase();
    flaky = flakyPool(database.pool);
    publisher = new RecordingPublisher();
    relay = createRelay({
      store: createPostgresStore({ client: flaky.client }),
      name: "orders",
      publisher,
      batchSize: 7,
      leaseMs: 600,
      backoff: { baseMs: 30, maxMs: 60 },
      onDead: "block",
      maintenance: false,
    });
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  it.each(STATEMENTS)("when %s: nothing is lost, doubled in the books, or out of order", async (_, pattern) => {
    const keys = ["a", "b", "c"];
    const tries = new Map<string, number>();
    publisher.rule = ({ key, n }) => {
      const name = `${key}#${n}`;
      const times = (tries.get(name) ?? 0) + 1;
      tries.set(name, times);
      if (key === "c" && n === 20 && times === 1) return { status: "rejected", error: new Error("dead once") };
      return n % 10 === 0 && times === 1 ? { status: "failed", error: new Error("again") } : undefined;
    };
    publisher.before = () => new Promise((resolve) => setTimeout(resolve, 3));
    flaky.loseAnswer(pattern, 3);
    await relay.start();
    for (let round = 0; round < 4; round++) {
      await database.enqueue(keys.flatMap((key) => series(key, 10, 1 + round * 10)));
      await new Promise((resolve) => setTimeout(resolve, 100));
      flaky.loseAnswer(pattern, 1);
    }
    await until(async () => (await database.store.admin.requeue({ relay: "orders" })) === 1, {
      what: "the dead letter",
    });
    for (const key of keys) {
      await until(() => publisher.firsts(key).length >= 40, { what: `all of ${key}`, timeoutMs: 60_000 });
      expect(publisher.firsts(key)).toEqual(upTo(40));
    }
    expect(flaky.lost).toBeGreaterThan(0);
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
    const [figures] = await database.store.admin.relays();
    expect(figures).toMatchObject({ published: 120n, parked: 0, blockedKeys: 0, dead: 0 });
  });
});
