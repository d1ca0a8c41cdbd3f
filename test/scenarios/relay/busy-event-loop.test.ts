import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { upTo } from "../support/recording-publisher.ts";
import { relayProcess, type RelayProcess } from "../support/relay-process.ts";

const LEASE_MS = 1000;

describe.skipIf(!hasPostgres())("a process that does not get to renew its lease", () => {
  let database: OutboxDatabase;
  let children: RelayProcess[];

  beforeEach(async () => {
    database = await outboxDatabase();
    children = [];
  });
  afterEach(async () => {
    for (const child of children) child.resume();
    await Promise.all(children.map((child) => child.kill()));
    await database[Symbol.asyncDispose]();
  });

  function start(config: Partial<Parameters<typeof relayProcess>[0]> = {}): RelayProcess {
    const child = relayProcess({ url: database.url, leaseMs: LEASE_MS, batchSize: 10, ...config });
    children.push(child);
    return child;
  }

  /** Everything was published, and by the books each message was settled once. */
  async function settledOnce(count: number): Promise<void> {
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
    const [relay] = await database.store.admin.relays();
    expect(relay?.published).toBe(BigInt(count));
    expect(await database.value("select sum(messages)::int from txbox.batch")).toBe(count);
  }

  it("busy for longer than the lease: it may begin nothing, its signal aborts, and what it settles counts for nothing", async () => {
    await database.enqueue(series("a", 30));
    const folder = mkdtempSync(join(tmpdir(), "txbox-busy-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const blockUntil = join(folder, "taken-over");
    const busy = start({ mode: "block", blockMs: 120_000, blockUntil });
    await busy.waitForLine("blocking");
    const other = start();
    await until(() => other.sent().length >= 30, { what: "the other to take over", timeoutMs: 60_000 });
    writeFileSync(blockUntil, "");
    expect(other.sent().map(({ n }) => n)).toEqual(upTo(30));
    expect(await busy.waitForLine("aborted")).toBe('aborted {"mayBegin":false,"signal":true}');
    await until(() => busy.events("lease_lost").length > 0, { what: "the loss to be noticed" });
    await database.enqueue(series("a", 10, 31));
    await until(() => new Set([...busy.sent(), ...other.sent()].map(({ n }) => n)).size === 40, { what: "the rest" });
    await settledOnce(40);
  });

  it("busy alone: no process took its lanes, so it goes on, and everything is settled once", async () => {
    await database.enqueue(series("a", 30));
    const busy = start({ mode: "block", blockMs: LEASE_MS * 2 });
    await busy.waitForLine("aborted");
    await until(() => new Set(busy.sent().map(({ n }) => n)).size === 30, { what: "all messages" });
    await settledOnce(30);
  });

  it("paused past its lease in mid-batch: first deliveries stay in order, nothing is settled twice", async () => {
    await database.enqueue(series("a", 30));
    const paused = start({ mode: "ask" });
    await until(() => paused.sent("asked").length === 10, { what: "its first batch" });
    paused.pause();
    const other = start();
    await until(() => other.sent().length >= 30, { what: "the other to take over", timeoutMs: 60_000 });
    expect(other.sent().map(({ n }) => n)).toEqual(upTo(30));
    paused.resume();
    paused.send("go");
    await until(() => paused.events("lease_lost").length > 0, { what: "the loss to be noticed" });
    for (let i = 0; i < 20; i++) paused.send("go");
    await database.enqueue(series("a", 10, 31));
    await until(() => new Set([...paused.sent(), ...other.sent()].map(({ n }) => n)).size === 40, { what: "the rest" });
    await settledOnce(40);
  });
});
