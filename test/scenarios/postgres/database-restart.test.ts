import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import type { RelayEvent } from "../../../src/core/events.ts";
import type { RelayOptions } from "../../../src/relay/relay-options.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip, type ServerSlot } from "../../harness/server-or-skip.ts";
import { type PostgresServer, startPostgres } from "../../harness/start-postgres.ts";
import { type Numbered, outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

const slot: ServerSlot<PostgresServer> = await serverOrSkip("PostgreSQL", () =>
  startPostgres({ owned: true, fsync: true, settings: { recovery_init_sync_method: "syncfs" } }),
);

describe.skipIf(slot.skipped)("a database that is killed", () => {
  let server: PostgresServer;
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relay: Relay;
  let events: RelayEvent[];

  beforeAll(() => {
    server = slot.server;
  });
  afterAll(() => slot.stop());
  beforeEach(async () => {
    database = await outboxDatabase({ serverUrl: server.url });
    publisher = new RecordingPublisher();
    events = [];
  });
  afterEach(async () => {
    await relay.stop({ deadlineMs: 2000 });
    if (server.pid === undefined) await server.restart();
    await database[Symbol.asyncDispose]();
  });

  function create(options: Partial<RelayOptions> = {}): void {
    relay = createRelay({
      store: database.store,
      name: "orders",
      publisher,
      batchSize: 10,
      leaseMs: 1500,
      maintenance: false,
      onEvent: (event) => void events.push(event),
      ...options,
    });
  }

  async function settledOnce(count: number): Promise<void> {
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, {
      what: "settling",
      timeoutMs: 60_000,
    });
    expect((await database.store.admin.relays())[0]?.published).toBe(BigInt(count));
    expect(await database.value("select sum(messages)::int from txbox.batch")).toBe(count);
    expect(
      await database.value("select count(*)::int from txbox.lane l join txbox.cursor c on c.id = l.cursor_id"),
    ).toBe(64);
  }

  const arrive = (key: string, count: number) =>
    until(() => publisher.firsts(key).length >= count, { what: `${count} of ${key}`, timeoutMs: 60_000 });

  it("in mid-batch: the relay comes back by itself; nothing is lost, nothing is settled twice", async () => {
    await database.enqueue(series("a", 100));
    let crashed = false;
    publisher.before = async (messages) => {
      if (crashed || !messages.some(({ body }) => String(body).includes('"n":42'))) return;
      crashed = true;
      await server.kill();
      await server.restart();
    };
    create();
    await relay.start();
    await arrive("a", 100);
    expect(crashed).toBe(true);
    expect(publisher.firsts("a")).toEqual(upTo(100));
    await settledOnce(100);
  });

  it("down for longer than the lease: the same", async () => {
    await database.enqueue(series("a", 50));
    create();
    await relay.start();
    await arrive("a", 50);
    await server.kill();
    await until(() => events.filter(({ type }) => type === "store_error").length >= 2, { what: "errors" });
    await new Promise((resolve) => setTimeout(resolve, 3000));
    await server.restart();
    await database.enqueue(series("a", 50, 51));
    await arrive("a", 100);
    expect(publisher.firsts("a")).toEqual(upTo(100));
    await settledOnce(100);
  });

  it("a relay that is started while the database is down waits for it", async () => {
    await database.enqueue(series("a", 20));
    await server.kill();
    create();
    await relay.start();
    expect(relay.state().running).toBe(true);
    await until(() => events.some(({ type }) => type === "store_error"), { what: "an error" });
    await server.restart();
    await arrive("a", 20);
    expect(publisher.firsts("a")).toEqual(upTo(20));
    await settledOnce(20);
  });

  it("again and again, with failing messages: order holds, nothing is lost", async () => {
    // Every seventh fails twice; what was parked may be undone by a crash.
    const tries = new Map<string, number>();
    publisher.rule = ({ key, n }) => {
      const name = `${key}#${n}`;
      const times = (tries.get(name) ?? 0) + 1;
      tries.set(name, times);
      return n % 7 === 0 && times <= 2 ? { status: "failed", error: new Error("again") } : undefined;
    };
    publisher.before = () => new Promise((resolve) => setTimeout(resolve, 5));
    create({ backoff: { baseMs: 50, maxMs: 200 } });
    await relay.start();
    let written = 0;
    for (let round = 0; round < 3; round++) {
      for (let i = 0; i < 20; i++) {
        await database.enqueue(["a", "b", "c"].flatMap((key) => series(key, 5, written + 1)));
        written += 5;
      }
      await server.kill();
      await server.restart();
    }
    for (const key of ["a", "b", "c"]) {
      await arrive(key, written);
      expect(publisher.firsts(key)).toEqual(upTo(written));
    }
    await until(async () => (await database.value("select count(*)::int from txbox.blocked")) === 0, {
      what: "no blocked keys",
    });
    await settledOnce(written * 3);
  });

  it("asynchronous commits by default: nothing that a crash undid was published, nothing that stayed is lost", async () => {
    const role = `lax_${Date.now()}`;
    await database.query(`create role ${role} login superuser; alter role ${role} set synchronous_commit = off`);
    const url = new URL(database.url);
    url.username = role;
    await using lax = await outboxDatabase({ url: url.href });
    expect(await lax.value("show synchronous_commit")).toBe("off");
    await database.query("create table business (key text, n int)");
    create({ store: lax.store, batchSize: 100 });
    await relay.start();
    let n = 0;
    for (let round = 0; round < 4; round++) {
      const endsAt = performance.now() + 600;
      await using writer = await lax.connect();
      while (performance.now() < endsAt) {
        n++;
        await writer.query("begin");
        await writer.query(`insert into business values ('a', ${n})`);
        await writer.enqueue([{ key: "a", n }] satisfies Numbered[]);
        await writer.query("commit");
      }
      await server.kill();
      await server.restart();
    }
    const kept = (await database.query<{ n: number }>("select n from business order by n")).map((row) => row.n);
    await until(() => publisher.firsts("a").length >= kept.length, { what: "all that stayed", timeoutMs: 60_000 });
    expect(publisher.firsts("a")).toEqual(kept);
  });

  it("a transaction prepared before the crash keeps its segment until it is delivered", async () => {
    const eager = await outboxDatabase({ url: database.url, segmentMs: 1, retentionMs: 0 });
    create();
    await relay.start();
    await database.enqueue(series("a", 5));
    await using late = await database.connect();
    await late.query("begin");
    await late.enqueue(series("late", 3));
    await eager.store.maintenance.run();
    await late.query("prepare transaction 'late'");
    await database.enqueue(series("a", 5, 6));
    await arrive("a", 10);
    await relay.stop();
    await server.kill();
    await server.restart();
    // Recovered under another name. Committed while the segment is about to be dropped, and before any relay has read
    // it.
    const maintained = eager.store.maintenance.run();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await database.query("commit prepared 'late'");
    await maintained;
    create();
    await relay.start();
    await arrive("late", 3);
    expect(publisher.firsts("late")).toEqual([1, 2, 3]);
    await eager.close();
  });
});
