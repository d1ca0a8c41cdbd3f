import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { RelayOptions } from "../../../src/relay/relay-options.ts";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { openPool, outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";
import { RecordingPublisher } from "../support/recording-publisher.ts";

const COUNT = 600;

describe.skipIf(!hasPostgres())("a statement_timeout that is too short for a whole batch", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relays: Relay[];
  let limited: ReturnType<typeof openPool>;

  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = new RecordingPublisher();
    relays = [];
    const url = new URL(database.url);
    url.searchParams.set("options", "-c statement_timeout=1000");
    limited = openPool(url.href);
    await database.enqueue(Array.from({ length: COUNT }, (_, i) => ({ key: `k${i}`, n: 1 })));
  });
  afterEach(async () => {
    await Promise.all(relays.map((relay) => relay.stop({ deadlineMs: 1000 })));
    await limited.end();
    await database[Symbol.asyncDispose]();
  });

  function relay(options: Partial<RelayOptions> = {}, client = limited): Relay {
    const made = createRelay({
      store: createPostgresStore({ client }),
      name: "orders",
      publisher,
      maintenance: false,
      ...options,
    });
    relays.push(made);
    return made;
  }

  /** As on a server that is slow: each row that is written takes its time. */
  async function slowDown(table: string, event: string, seconds: number): Promise<void> {
    await database.query(`create function slow() returns trigger language plpgsql as
      $$ begin perform pg_sleep(${seconds}); return new; end $$`);
    await database.query(`create trigger slow before ${event} on txbox.${table} for each row execute function slow()`);
  }

  const counted = (what: string): Promise<unknown> => database.value(`select count(*)::int from txbox.${what}`);

  it("settles failures in smaller batches", async () => {
    await slowDown("parked", "insert", 0.005);
    publisher.rule = () => ({ status: "failed", error: new Error("not now") });
    await relay({ backoff: { baseMs: 3_600_000, maxMs: 3_600_000 } }).start();
    await until(async () => (await counted("parked")) === COUNT, { what: "all parked", timeoutMs: 60_000 });
  });

  it("carries out commands in smaller parts", async () => {
    publisher.rule = () => ({ status: "rejected", error: new Error("never") });
    await relay({}, database.pool).drainOnce();
    expect(await counted("dead where state = 'dead'")).toBe(COUNT);
    publisher.rule = () => undefined;
    await slowDown("dead", "update", 0.005);
    await database.query("alter table txbox.dead disable trigger slow");
    expect(await database.store.admin.requeue({ all: true })).toBe(COUNT);
    await database.query("alter table txbox.dead enable trigger slow");
    await relay().start();
    await until(
      async () => (await counted("parked")) === 0 && (await counted("dead where command is not null")) === 0,
      {
        what: "all requeued and delivered",
        timeoutMs: 60_000,
      },
    );
    expect(new Set(publisher.sent.map(({ key }) => key)).size).toBe(COUNT);
  });

  it("reads each dead letter a few times, though all of their keys are held and requeued at once", async () => {
    publisher.rule = () => ({ status: "rejected", error: new Error("never") });
    const first = relay({ onDead: "block" }, database.pool);
    await first.drainOnce();
    await database.store.admin.requeue({ all: true });
    const reads = `select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables
      where schemaname = 'txbox' and relname = 'dead'`;
    await database.query("select pg_stat_reset()");
    publisher.rule = () => undefined;
    await first.drainOnce();
    expect(await counted("dead where state = 'requeued'")).toBe(COUNT);
    // Sessions report what they read when they have been idle for a while, at the latest when they end.
    await until(async () => Number(await database.value(reads)) > COUNT, { what: "the figures", timeoutMs: 60_000 });
    await new Promise((resolve) => setTimeout(resolve, 1500));
    expect(Number(await database.value(reads))).toBeLessThan(COUNT * 50);
  });
});
