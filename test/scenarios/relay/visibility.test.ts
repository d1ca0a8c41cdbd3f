import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

/** Transactions that commit in another order than they drew their positions and transaction ids. */
describe.skipIf(!hasPostgres())("no committed message is skipped", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relay: Relay;

  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = new RecordingPublisher();
    relay = createRelay({ store: database.store, name: "orders", publisher, batchSize: 10, maintenance: false });
    await relay.start();
  });
  afterEach(async () => {
    await relay.stop();
    await database[Symbol.asyncDispose]();
  });

  const sentOf = (key: string) => publisher.sent.filter((message) => message.key === key).map(({ n }) => n);
  const arrive = (key: string, count: number) =>
    until(() => sentOf(key).length >= count, { what: `${count} of ${key}` });

  /** Later messages go out in several windows while others are open. */
  async function goOn(key: string): Promise<void> {
    for (let i = 0; i < 5; i++) {
      await database.enqueue(series(key, 7, 1 + i * 7));
      await arrive(key, 7 + i * 7);
    }
    expect(sentOf(key)).toEqual(upTo(35));
  }

  it("a transaction that drew its position before a window and commits after it", async () => {
    await using late = await database.connect();
    await late.query("begin");
    await late.enqueue(series("late", 3));
    await goOn("early");
    expect(sentOf("late")).toEqual([]);
    await late.query("commit");
    await arrive("late", 3);
    await goOn("after");
    expect(sentOf("late")).toEqual([1, 2, 3]);
  });

  it("a transaction that took its id long before it enqueues", async () => {
    await using early = await database.connect();
    await early.query("begin; select pg_current_xact_id()");
    await goOn("first");
    await early.enqueue(series("early-id", 3));
    await goOn("second");
    await early.query("commit");
    await arrive("early-id", 3);
    expect(sentOf("early-id")).toEqual([1, 2, 3]);
  });

  it("many open transactions that commit in reverse, with windows between", async () => {
    const clients = await Promise.all(upTo(10).map(() => database.connect()));
    for (const [i, client] of clients.entries()) {
      await client.query("begin");
      await client.enqueue(series(`open-${i}`, 5));
    }
    for (const [i, client] of [...clients.entries()].toReversed()) {
      await client.query("commit");
      await arrive(`open-${i}`, 5);
      await database.enqueue([{ key: "between", n: 10 - i }]);
    }
    await arrive("between", 10);
    for (let i = 0; i < 10; i++) expect(sentOf(`open-${i}`)).toEqual(upTo(5));
    expect(sentOf("between")).toEqual(upTo(10));
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
  });

  it("a long transaction elsewhere holds up only itself", async () => {
    await using idle = await database.connect();
    await idle.query("begin; select pg_current_xact_id()");
    await goOn("flowing");
    await idle.query("rollback");
  });

  it("savepoints: what was rolled back to one is not sent, the rest is", async () => {
    await using client = await database.connect();
    await client.query("begin");
    await client.enqueue([{ key: "saved", n: 1 }]);
    await client.query("savepoint s");
    await client.enqueue([{ key: "saved", n: -1 }]);
    await client.query("rollback to savepoint s");
    await client.query("savepoint t");
    await client.enqueue([{ key: "saved", n: 2 }]);
    await client.query("release savepoint t");
    await client.query("commit");
    await arrive("saved", 2);
    await goOn("after");
    expect(sentOf("saved")).toEqual([1, 2]);
  });

  it("prepared transactions: sent when committed, not sent when rolled back", async () => {
    await using client = await database.connect();
    for (const name of ["kept", "dropped"]) {
      await client.query("begin");
      await client.enqueue(series(name, 2));
      await client.query(`prepare transaction '${name}'`);
    }
    await goOn("meanwhile");
    expect(sentOf("kept")).toEqual([]);
    await client.query("rollback prepared 'dropped'");
    await client.query("commit prepared 'kept'");
    await arrive("kept", 2);
    await goOn("after");
    expect(sentOf("kept")).toEqual([1, 2]);
    expect(sentOf("dropped")).toEqual([]);
  });

  it("writers that lock the aggregate before they enqueue are in commit order, also across open windows", async () => {
    await database.query("create table aggregate (id text primary key, n int not null default 0)");
    await database.query("insert into aggregate values ('x')");
    const write = async (): Promise<void> => {
      await using client = await database.connect();
      for (let i = 0; i < 40; i++) {
        await client.query("begin; select pg_current_xact_id()");
        const { rows } = await client.client.query<{ n: number }>(
          "update aggregate set n = n + 1 where id = 'x' returning n",
        );
        await client.enqueue([{ key: "x", n: rows[0]?.n ?? 0 }]);
        await client.query(i % 5 === 4 ? "rollback" : "commit");
      }
    };
    await Promise.all(upTo(5).map(write));
    await arrive("x", 160);
    expect(sentOf("x")).toEqual(upTo(160));
  });
});
