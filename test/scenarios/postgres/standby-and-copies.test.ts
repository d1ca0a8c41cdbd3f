import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import type { RelayEvent } from "../../../src/core/events.ts";
import type { RelayOptions } from "../../../src/relay/relay-options.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/deadline.ts";
import { serverOrSkip, type ServerSlot } from "../../harness/server-or-skip.ts";
import { type PostgresServer, startPostgres } from "../../harness/start-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";
import { copyRows } from "../support/restored-copy.ts";
import { switchingPool } from "../support/switching-pool.ts";
import { startStandby } from "../support/standby-server.ts";

const slot: ServerSlot<PostgresServer> = await serverOrSkip("PostgreSQL", () =>
  startPostgres({ owned: true, settings: { wal_keep_size: "128MB" } }),
);

describe.skipIf(slot.skipped)("databases that are not what they seem", () => {
  let server: PostgresServer;
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let events: RelayEvent[];
  let relays: Relay[];

  beforeAll(() => {
    server = slot.server;
  });
  afterAll(() => slot.stop());
  beforeEach(async () => {
    database = await outboxDatabase({ serverUrl: server.url });
    publisher = new RecordingPublisher();
    events = [];
    relays = [];
  });
  afterEach(async () => {
    await Promise.all(relays.map((relay) => relay.stop({ deadlineMs: 1000 })));
    if (server.pid === undefined) await server.restart();
    await database[Symbol.asyncDispose]();
  });

  function create(of: OutboxDatabase, options: Partial<RelayOptions> = {}): Relay {
    const relay = createRelay({
      store: of.store,
      name: "orders",
      publisher,
      batchSize: 10,
      leaseMs: 900,
      maintenance: false,
      onEvent: (event) => void events.push(event),
      ...options,
    });
    relays.push(relay);
    return relay;
  }

  const codes = () => events.flatMap((event) => (event.type === "store_error" ? [event.code] : []));
  const arrive = (key: string, count: number) =>
    until(() => publisher.firsts(key).length >= count, { what: `${count} of ${key}`, timeoutMs: 60_000 });

  it.each(["a new relay", "a relay with a history"])(
    "a standby is refused for %s, which goes on once it is promoted",
    async (kind) => {
      if (kind === "a relay with a history") {
        await database.enqueue(series("a", 15));
        await create(database).drainOnce();
        await database.enqueue(series("a", 15, 16));
      } else {
        await database.enqueue(series("a", 30));
      }
      await using standby = await startStandby(server);
      await standby.caughtUp();
      const url = new URL(standby.url);
      url.pathname = new URL(database.url).pathname;
      await using copy = await outboxDatabase({ url: url.href });
      const before = publisher.sent.length;
      const relay = create(copy);
      await relay.start();
      await until(() => codes().length >= 2, { what: "refusals" });
      expect(new Set(codes())).toEqual(new Set(["standby"]));
      expect(publisher.sent).toHaveLength(before);
      await server.kill();
      await standby.promote();
      await arrive("a", 30);
      expect(publisher.firsts("a")).toEqual(upTo(30));
      await copy.enqueue(series("a", 5, 31));
      await arrive("a", 35);
      expect(publisher.sent).toHaveLength(35);
      await relay.stop();
    },
    60_000,
  );

  it("a restored copy is refused until it is rebased; then what was pending is delivered, and nothing else", async () => {
    const broken = new Set(["parked", "dead"]);
    publisher.rule = ({ key, n }) => {
      if (key === "parked" && n === 2 && broken.has(key)) return { status: "failed", error: new Error("not yet") };
      if (key === "dead" && n === 2 && broken.has(key)) return { status: "rejected", error: new Error("never") };
      return undefined;
    };
    await database.enqueue([...series("done", 25), ...series("parked", 4), ...series("dead", 4)]);
    const first = create(database, { backoff: { baseMs: 3_600_000, maxMs: 3_600_000 }, onDead: "block" });
    await first.start();
    await arrive("done", 25);
    await until(async () => (await database.store.admin.relays())[0]?.parked === 5, { what: "parking" });
    // The backup is taken with a window open: half of it settled.
    await database.enqueue(series("open", 20));
    publisher.before = (messages) =>
      String(messages[0]?.body).includes('"n":11') ? new Promise((_, reject) => setTimeout(reject, 60_000)) : undefined;
    await arrive("open", 10);
    await until(
      async () => (await database.value("select max(done)::text from txbox.cursor where cur is not null")) !== "0",
      { what: "half a window" },
    );
    await database.enqueue(series("fresh", 10));

    await using copy = await outboxDatabase({ serverUrl: server.url });
    await copyRows(database.pool, copy.pool);
    await first.stop({ deadlineMs: 100 });
    publisher = new RecordingPublisher();
    events = [];
    const relay = create(copy, { onDead: "block" });
    await relay.start();
    await until(() => codes().length >= 2, { what: "refusals" });
    expect(new Set(codes())).toEqual(new Set(["restored_copy"]));
    expect(publisher.sent).toEqual([]);

    const report = await copy.store.rebase();
    expect(report.republished).toBe(20);
    await arrive("fresh", 10);
    await arrive("open", 10);
    expect(publisher.firsts("fresh")).toEqual(upTo(10));
    expect(publisher.firsts("open")).toEqual(upTo(10, 11));
    await copy.store.admin.requeue({ relay: "orders" });
    await arrive("dead", 3);
    expect(publisher.firsts("dead")).toEqual([2, 3, 4]);
    await copy.enqueue([...series("fresh", 10, 11), ...series("done", 5, 26)]);
    await arrive("fresh", 20);
    await arrive("done", 5);
    expect(publisher.firsts("done")).toEqual(upTo(5, 26));
    // Its next attempt is an hour away; what waits behind it is still there.
    expect(publisher.firsts("parked")).toEqual([]);
    await until(async () => (await copy.store.admin.relays())[0]?.pending === 3, { what: "the last settle" });
    expect((await copy.store.admin.relays())[0]).toMatchObject({ parked: 3, pending: 3 });
  });

  it("a restored copy on a server whose transaction ids are behind works as well after the rebase", async () => {
    // The copy's ids lie in the future of this server: without a rebase nothing would ever be visible.
    await database.query("do $$ begin for i in 1..3000 loop perform pg_current_xact_id(); commit; end loop; end $$");
    await database.enqueue(series("a", 10));
    await create(database).drainOnce();
    await database.enqueue(series("a", 10, 11));
    await using other = await startPostgres({ owned: true });
    await using copy = await outboxDatabase({ serverUrl: other.url });
    await copyRows(database.pool, copy.pool, { sequences: false });
    publisher = new RecordingPublisher();
    const relay = create(copy);
    await relay.start();
    await until(() => codes().includes("restored_copy"), { what: "the refusal" });
    await copy.store.rebase();
    await arrive("a", 10);
    await copy.enqueue(series("a", 10, 21));
    await arrive("a", 20);
    expect(publisher.firsts("a")).toEqual(upTo(20, 11));
    await relay.stop();
  });

  it("a copy that is restored under a running relay is noticed, though lease, epoch and sequence are the same", async () => {
    await database.query("do $$ begin for i in 1..3000 loop perform pg_current_xact_id(); commit; end loop; end $$");
    await database.enqueue(series("a", 10));
    const pools = switchingPool(database.pool);
    const relay = create(database, { store: createPostgresStore({ client: pools.client }) });
    await relay.start();
    await arrive("a", 10);
    await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
    await using other = await startPostgres({ owned: true });
    await using copy = await outboxDatabase({ serverUrl: other.url });
    await copyRows(database.pool, copy.pool);
    pools.use(copy.pool);
    await until(() => codes().includes("restored_copy"), { what: "the refusal" });
    // Leaving must not make it look sound.
    await relay.stop();
    events = [];
    const next = create(copy);
    await next.start();
    await until(() => codes().includes("restored_copy"), { what: "the refusal of the next" });
    await copy.store.rebase();
    await copy.enqueue(series("a", 10, 11));
    await arrive("a", 20);
    expect(publisher.firsts("a")).toEqual(upTo(20));
    await next.stop();
  });

  it("what is written to a restored copy before the rebase is delivered too", async () => {
    await database.query("do $$ begin for i in 1..3000 loop perform pg_current_xact_id(); commit; end loop; end $$");
    await database.enqueue(series("a", 10));
    await create(database).drainOnce();
    await using other = await startPostgres({ owned: true });
    await using copy = await outboxDatabase({ serverUrl: other.url });
    await copyRows(database.pool, copy.pool);
    // The application is back before an operator has looked after the relay.
    await copy.enqueue(series("a", 5, 11));
    await using client = await copy.connect();
    await client.query("begin; savepoint s");
    await client.enqueue(series("a", 5, 16));
    await client.query("release savepoint s; commit");
    publisher = new RecordingPublisher();
    const relay = create(copy);
    await relay.start();
    await until(() => codes().includes("restored_copy"), { what: "the refusal" });
    await copy.store.rebase();
    await copy.enqueue(series("a", 5, 21));
    await arrive("a", 15);
    expect(publisher.firsts("a")).toEqual(upTo(15, 11));
    await relay.stop();
  });

  it("a copy made with CREATE DATABASE … TEMPLATE keeps its transaction ids, so it may go on at once", async () => {
    await database.enqueue(series("a", 10));
    await create(database).drainOnce();
    await database.enqueue(series("a", 10, 11));
    const name = new URL(database.url).pathname.slice(1);
    await database.close();
    await using admin = await outboxDatabase({ serverUrl: server.url });
    await admin.query(`create database ${name}_copy template ${name}`);
    const url = new URL(database.url);
    url.pathname = `/${name}_copy`;
    const copy = await outboxDatabase({ url: url.href });
    publisher = new RecordingPublisher();
    const relay = create(copy);
    await relay.start();
    await arrive("a", 10);
    expect(publisher.firsts("a")).toEqual(upTo(10, 11));
    await relay.stop();
    await copy.close();
    await admin.query(`drop database ${name}_copy with (force)`);
    database = await outboxDatabase({ serverUrl: server.url });
  });
});
