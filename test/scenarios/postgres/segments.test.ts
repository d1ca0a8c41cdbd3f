import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import type { RelayOptions } from "../../../src/relay/relay-options.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until, withDeadline } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { flakyPool } from "../support/flaky-pool.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

/** Every maintenance run rotates, and drops what is settled. */
const EAGER = { segmentMs: 1, retentionMs: 0 };

describe.skipIf(!hasPostgres())("segments are rotated and dropped", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relay: Relay;

  beforeEach(async () => {
    database = await outboxDatabase(EAGER);
    publisher = new RecordingPublisher();
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  async function start(options: Partial<RelayOptions> = {}): Promise<void> {
    relay = createRelay({ store: database.store, name: "orders", publisher, maintenance: false, ...options });
    await relay.start();
  }
  const maintain = () => withDeadline(database.store.maintenance.run(), 10_000, "maintenance");
  const segments = async (): Promise<number[]> =>
    (await database.query<{ n: string }>("select n from txbox.segment order by n")).map(({ n }) => Number(n));
  const arrive = (key: string, count: number) =>
    until(() => publisher.firsts(key).length >= count, { what: `${count} of ${key}` });

  it("while messages flow: nothing is lost, old segments go", async () => {
    await start();
    for (let i = 0; i < 10; i++) {
      await database.enqueue(series("a", 10, 1 + i * 10));
      await maintain();
    }
    await arrive("a", 100);
    await until(async () => (await maintain()) && (await segments()).length <= 3, { what: "the old segments to go" });
    expect(publisher.firsts("a")).toEqual(upTo(100));
    expect(Math.min(...(await segments()))).toBeGreaterThan(5);
  });

  it("a transaction that drew its position before the rotation keeps its segment until it is delivered", async () => {
    await start();
    await using late = await database.connect();
    await late.query("begin");
    await late.enqueue(series("late", 3));
    for (let i = 0; i < 4; i++) {
      await database.enqueue(series("a", 5, 1 + i * 5));
      await arrive("a", 5 + i * 5);
      await maintain();
    }
    expect((await segments())[0]).toBe(0);
    await late.query("commit");
    await arrive("late", 3);
    await until(async () => (await maintain()) && !(await segments()).includes(0), { what: "the first segment to go" });
  });

  it("a transaction that is prepared after the rotation keeps its segment too", async () => {
    await start();
    await using late = await database.connect();
    await database.enqueue(series("a", 5));
    await late.query("begin");
    await late.enqueue(series("late", 3));
    await maintain();
    await late.query("prepare transaction 'late'");
    await database.enqueue(series("a", 5, 6));
    await arrive("a", 10);
    await relay.stop();
    // Committed while the segment is about to be dropped, and before any relay has read it.
    const maintained = maintain();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await late.query("commit prepared 'late'");
    await maintained;
    await start();
    await arrive("late", 3);
    expect(publisher.firsts("late")).toEqual([1, 2, 3]);
    await until(async () => (await maintain()) && !(await segments()).includes(0), { what: "the first segment to go" });
  });

  it("a rotation that was interrupted neither repeats positions nor fails a business transaction", async () => {
    await start();
    const flaky = flakyPool(database.pool);
    const interrupted = createPostgresStore({ client: flaky.client, ...EAGER });
    for (let i = 0; i < 3; i++) {
      await database.enqueue(series("a", 10, 1 + i * 30));
      flaky.loseAnswer(/setval/);
      await expect(interrupted.maintenance.run()).rejects.toThrow("ECONNRESET");
      await database.enqueue(series("a", 10, 11 + i * 30));
      await maintain();
      await database.enqueue(series("a", 10, 21 + i * 30));
    }
    expect(flaky.lost).toBe(3);
    await arrive("a", 90);
    expect(publisher.firsts("a")).toEqual(upTo(90));
    const positions = publisher.sent.map(({ position }) => position);
    expect(positions).toEqual(positions.toSorted((x, y) => Number(x - y)));
  });

  it("parked messages outlive their segment", async () => {
    let broken = true;
    publisher.rule = ({ key, n }) =>
      broken && key === "bad" && n === 2 ? { status: "failed", error: new Error("not yet") } : undefined;
    await start({ backoff: { baseMs: 200, maxMs: 200 }, maxAttempts: 10_000 });
    await database.enqueue([...series("bad", 5), ...series("good", 5)]);
    await arrive("good", 5);
    await until(async () => (await maintain()) && !(await segments()).includes(0), { what: "the first segment to go" });
    expect(publisher.firsts("bad")).toEqual([1]);
    broken = false;
    await arrive("bad", 5);
    expect(publisher.firsts("bad")).toEqual(upTo(5));
    await until(
      async () => (await maintain()) && (await database.value("select count(*)::int from txbox.kept_message")) === 0,
      { what: "the kept copies to go" },
    );
  });

  it("dead letters outlive their segment and can be requeued", async () => {
    let broken = true;
    publisher.rule = ({ key }) =>
      broken && key === "bad" ? { status: "rejected", error: new Error("never") } : undefined;
    await start({ onDead: "block" });
    await database.enqueue([...series("bad", 3), ...series("good", 3)]);
    await arrive("good", 3);
    await until(async () => (await maintain()) && !(await segments()).includes(0), { what: "the first segment to go" });
    broken = false;
    expect(await database.store.admin.requeue({ relay: "orders" })).toBe(1);
    await arrive("bad", 3);
    expect(publisher.firsts("bad")).toEqual(upTo(3));
  });

  it("a relay that lags keeps its segments; others do not wait for it", async () => {
    await start();
    const lagging = createRelay({
      store: database.store,
      name: "lagging",
      publisher: new RecordingPublisher(),
      maintenance: false,
    });
    await lagging.start();
    await lagging.stop();
    await database.enqueue(series("a", 5));
    await arrive("a", 5);
    // Transactions of other databases on the server may be open while the segment is closed.
    const heldBack = async () => {
      const report = await maintain();
      expect(report.droppedSegments).toEqual([]);
      return report.heldBackBy.length > 0 && report;
    };
    expect(await until(heldBack, { what: "segments that are kept" })).toMatchObject({ heldBackBy: ["lagging"] });
    const drained = await lagging.drainOnce();
    expect(drained.published).toBe(5);
    await until(async () => (await maintain()) && !(await segments()).includes(0), { what: "the first segment to go" });
  });

  it("never makes a writer wait, though transactions are open on the log", async () => {
    await start();
    await using open = await database.connect();
    await open.query("begin");
    await open.enqueue(series("open", 1));
    let slowest = 0;
    const enough = new AbortController();
    const writing = (async () => {
      for (let i = 0; !enough.signal.aborted; i++) {
        const startedAt = performance.now();
        await database.enqueue([{ key: "a", n: i + 1 }]);
        slowest = Math.max(slowest, performance.now() - startedAt);
      }
    })();
    const heldUntil = performance.now() + 3000;
    for (let i = 0; i < 5 || performance.now() < heldUntil; i++) await maintain();
    await open.query("commit");
    for (let i = 0; i < 5; i++) await maintain();
    enough.abort();
    await writing;
    expect(slowest).toBeLessThan(1500);
  });

  it("runs in many processes at once", async () => {
    await start();
    for (let i = 0; i < 5; i++) {
      await database.enqueue(series("a", 10, 1 + i * 10));
      await arrive("a", 10 + i * 10);
      await Promise.all(upTo(4).map(maintain));
    }
    expect(publisher.firsts("a")).toEqual(upTo(50));
  });
});
