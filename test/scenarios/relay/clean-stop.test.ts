import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { upTo } from "../support/recording-publisher.ts";
import { type ChildConfig, relayProcess, type RelayProcess } from "../support/relay-process.ts";

/** Far longer than any wait here: a test that needs it to run out fails. */
const LEASE_MS = 60_000;
/** Nor does a stop end only because its deadline is over, unless it has to. */
const STOP_DEADLINE_MS = 60_000;
/** What needs neither of the two, on a machine with much else to do. */
const AT_ONCE_MS = 20_000;

describe.skipIf(!hasPostgres())("SIGTERM", () => {
  let database: OutboxDatabase;
  let children: RelayProcess[];

  beforeEach(async () => {
    database = await outboxDatabase();
    children = [];
  });
  afterEach(async () => {
    await Promise.all(children.map((child) => child.kill()));
    await database[Symbol.asyncDispose]();
  });

  async function start(config: Partial<ChildConfig> = {}): Promise<RelayProcess> {
    const child = relayProcess({
      url: database.url,
      leaseMs: LEASE_MS,
      stopDeadlineMs: STOP_DEADLINE_MS,
      batchSize: 10,
      ...config,
    });
    children.push(child);
    await child.waitForLine("ready");
    return child;
  }

  const stopMs = async (child: RelayProcess): Promise<number> =>
    Number((await child.waitForLine(/^stopped /)).split(" ")[1]);

  it("finishes and settles what is in flight, and gives the lanes back at once", async () => {
    await database.enqueue(series("a", 50));
    const first = await start({ mode: "ask" });
    await until(() => first.sent("asked").length === 10, { what: "the first batch" });
    first.signal("SIGTERM");
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(first.running).toBe(true);
    first.send("go");
    expect(await stopMs(first)).toBeLessThan(AT_ONCE_MS);
    expect(first.sent().map(({ n }) => n)).toEqual(upTo(10));

    const second = await start();
    await until(() => second.sent().length === 40, {
      what: "the rest, without waiting for the lease",
      timeoutMs: AT_ONCE_MS,
    });
    expect(second.sent().map(({ n }) => n)).toEqual(upTo(40, 11));
    expect((await database.store.admin.relays())[0]?.lanes.map(({ lanes }) => lanes)).toEqual([64]);
    expect(await database.value("select sum(crashes)::int from txbox.cursor")).toBe(0);
  });

  it("gives up a publisher that hangs when the deadline is over", async () => {
    await database.enqueue(series("a", 5));
    const first = await start({ mode: "hang", stopDeadlineMs: 500 });
    await first.waitForLine("hanging");
    first.signal("SIGTERM");
    expect(await stopMs(first)).toBeLessThan(AT_ONCE_MS);
    expect((await first.waitForExit()).code).toBe(0);

    const second = await start();
    await until(() => second.sent().length === 5, { what: "the messages elsewhere" });
    expect(second.sent().map(({ n }) => n)).toEqual(upTo(5));
  });

  it("ends at once when there is nothing to do", async () => {
    const child = await start();
    child.signal("SIGTERM");
    expect(await stopMs(child)).toBeLessThan(AT_ONCE_MS);
    expect((await child.waitForExit()).code).toBe(0);
    expect(await database.value("select count(*)::int from txbox.member")).toBe(0);
  });

  it("while the database hangs, ends within the deadline", async () => {
    await database.enqueue(series("a", 5));
    const child = await start({ stopDeadlineMs: 1000 });
    await until(() => child.sent().length === 5, { what: "delivery" });
    await using blocker = await database.connect();
    await blocker.query("begin; lock table txbox.cursor, txbox.member in access exclusive mode");
    await new Promise((resolve) => setTimeout(resolve, 300));
    child.signal("SIGTERM");
    const exit = await child.waitForExit({ timeoutMs: AT_ONCE_MS });
    expect(exit.code).toBe(0);
    await blocker.query("rollback");
  });
});
