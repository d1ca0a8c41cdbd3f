import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { firstsOf, upTo } from "../support/recording-publisher.ts";
import { type ChildSent, relayProcess, type RelayProcess } from "../support/relay-process.ts";

describe.skipIf(!hasPostgres())("a message that kills the process", () => {
  let database: OutboxDatabase;
  let children: RelayProcess[];
  let stopped: boolean;

  beforeEach(async () => {
    database = await outboxDatabase();
    children = [];
    stopped = false;
  });
  afterEach(async () => {
    stopped = true;
    await Promise.all(children.map((child) => child.kill()));
    await database[Symbol.asyncDispose]();
  });

  /** Starts the relay again whenever it dies, as an orchestrator would. */
  function keepRunning(): void {
    const child = relayProcess({ url: database.url, mode: "die-on-poison", leaseMs: 500, batchSize: 50 });
    children.push(child);
    void child.exited.then(() => stopped || keepRunning());
  }

  const sent = (): ChildSent[] => children.flatMap((child) => child.sent());
  const deaths = (): number => children.filter(({ running }) => !running).length;

  it("is found, dead after a few crashes, and everything else is delivered in order", async () => {
    const poisoned = series("a", 100).map((message) => (message.n === 37 ? { ...message, poison: true } : message));
    await database.enqueue([...poisoned, ...series("b", 100)].toSorted((x, y) => x.n - y.n));
    keepRunning();
    await until(() => firstsOf(sent(), "a").length === 99 && firstsOf(sent(), "b").length === 100, {
      what: "everything but the poison",
      timeoutMs: 60_000,
      intervalMs: 100,
    });
    expect(firstsOf(sent(), "a")).toEqual(upTo(100).filter((n) => n !== 37));
    expect(firstsOf(sent(), "b")).toEqual(upTo(100));
    const dead = await until(async () => (await database.store.admin.dead({ relay: "orders" }))[0], {
      what: "the dead letter",
    });
    expect(dead).toMatchObject({ key: "a", state: "dead" });
    expect(JSON.parse(String(dead.body))).toMatchObject({ n: 37 });
    expect(dead.lastError).toMatch(/died 3 times/);
    expect(await database.store.admin.dead({ relay: "orders" })).toHaveLength(1);
    // Two deaths until messages are tried one by one, three with this one in hand.
    expect(deaths()).toBeLessThanOrEqual(6);
    await database.enqueue(series("c", 100));
    const before = deaths();
    await until(() => firstsOf(sent(), "c").length === 100, { what: "later messages", timeoutMs: 60_000 });
    expect(deaths()).toBe(before);
  });

  it("processes that die while the broker is out blame no message", async () => {
    await database.enqueue([...series("a", 20), ...series("b", 20)]);
    for (let i = 0; i < 8; i++) {
      const child = relayProcess({ url: database.url, mode: "out", leaseMs: 500, batchSize: 50 });
      children.push(child);
      await child.waitForLine("out");
      // Deaths come while it waits for the broker, not in the moment of the attempt.
      await new Promise((resolve) => setTimeout(resolve, 300));
      await child.kill();
    }
    const child = relayProcess({ url: database.url, leaseMs: 500, batchSize: 50 });
    children.push(child);
    await until(() => child.sent().length >= 40, { what: "everything" });
    for (const key of ["a", "b"]) expect(firstsOf(child.sent(), key)).toEqual(upTo(20));
    expect(await database.store.admin.dead({ relay: "orders" })).toEqual([]);
  });

  it("two of them cost twice the crashes, and nothing else", async () => {
    const bad = new Set([10, 30]);
    await database.enqueue(
      series("a", 60).map((message) => (bad.has(message.n) ? { ...message, poison: true } : message)),
    );
    keepRunning();
    await until(() => firstsOf(sent(), "a").length === 58, { what: "the rest", timeoutMs: 90_000, intervalMs: 100 });
    expect(firstsOf(sent(), "a")).toEqual(upTo(60).filter((n) => !bad.has(n)));
    await until(async () => (await database.store.admin.dead({ relay: "orders" })).length === 2, {
      what: "two dead letters",
    });
    expect(deaths()).toBeLessThanOrEqual(12);
  });
});
