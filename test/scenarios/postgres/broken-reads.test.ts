import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createRelay, type Relay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";
import { until } from "../../harness/deadline.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase, series } from "../support/outbox-database.ts";
import { RecordingPublisher, upTo } from "../support/recording-publisher.ts";

interface Copy {
  text: string;
  submit: unknown;
  handleCopyData: (this: void, message: object) => void;
  handleError(error: unknown): void;
}

/** A pool whose next COPY is cut off after some rows, and fails when a body is asked for that was left out of it. */
function cutOffPool(pool: pg.Pool): { client: PgPool; cutAfter: (rows: number) => void } {
  let rows: number | undefined;
  let fail: (() => void) | undefined;

  function cutOff(copy: Copy, left: number): Copy {
    fail = () => copy.handleError(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));
    return new Proxy(copy, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== "function") return value;
        if (name === "handleCopyData") return (message: object) => void (left-- > 0 && target.handleCopyData(message));
        if (name === "handleReadyForQuery") return () => undefined;
        return value.bind(target) as unknown;
      },
    });
  }

  return {
    client: {
      async query(config) {
        const { text } = config as { text: string };
        if (fail !== undefined && text.includes("encode(m.body")) {
          fail();
          fail = undefined;
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        return pool.query(config as pg.QueryConfig);
      },
      async connect() {
        const client = await pool.connect();
        return new Proxy(client, {
          get(target, name) {
            const value: unknown = Reflect.get(target, name);
            if (typeof value !== "function") return value;
            if (name !== "query") return value.bind(target) as unknown;
            return (query: Copy, ...rest: unknown[]): unknown => {
              const cutNow = rows !== undefined && query.submit !== undefined;
              const sent = cutNow ? cutOff(query, rows!) : query;
              if (cutNow) rows = undefined;
              return value.call(target, sent, ...rest);
            };
          },
        });
      },
      get totalCount() {
        return pool.totalCount;
      },
    },
    cutAfter: (count) => (rows = count),
  };
}

describe.skipIf(!hasPostgres())("a page that breaks off", () => {
  let database: OutboxDatabase;
  let publisher: RecordingPublisher;
  let relay: Relay | undefined;

  beforeEach(async () => {
    database = await outboxDatabase();
    publisher = new RecordingPublisher();
  });
  afterEach(async () => {
    await relay?.stop();
    await database[Symbol.asyncDispose]();
  });

  const relayOn = (client: PgPool, batch: { batchSize: number; batchBytes?: number }): Relay =>
    createRelay({ store: createPostgresStore({ client }), name: "orders", publisher, maintenance: false, ...batch });

  /** A pool whose clients send queries that a library has changed. */
  function wrappedPool(wrap: (send: (...args: unknown[]) => unknown, args: unknown[]) => unknown): pg.Pool {
    const pool = new pg.Pool({ connectionString: database.url });
    pool.on("connect", (client) => {
      const query = client.query.bind(client) as (...args: unknown[]) => unknown;
      client.query = ((...args: unknown[]) => wrap(query, args)) as typeof client.query;
    });
    return pool;
  }

  it("while a large body is fetched: what did not arrive is read again", async () => {
    const { client, cutAfter } = cutOffPool(database.pool);
    relay = relayOn(client, { batchSize: 2, batchBytes: 600 });
    await relay.start();
    // Small ones, so that it reads several batches at once from now on.
    await database.enqueue(series("a", 20));
    await until(() => publisher.firsts("a").length === 20, { what: "small messages" });
    cutAfter(4);
    const large = { key: "a", n: 21, pad: "x".repeat(400) };
    await database.enqueue([large, ...series("a", 29, 22)]);
    await until(() => publisher.firsts("a").length === 50, { what: "all of them" });
    expect(publisher.firsts("a")).toEqual(upTo(50));
  });

  it("because the server ended the connection: the pool is not left with one that is about to close", async () => {
    const pool = new pg.Pool({ connectionString: database.url });
    // Without a listener for it, the process would end.
    const unheard: Error[] = [];
    pool.on("error", (error) => unheard.push(error));
    await using other = await database.connect();
    publisher.before = async () => {
      publisher.before = () => undefined;
      await other.query('begin; lock table "txbox"."message"');
    };
    relay = relayOn(pool, { batchSize: 2 });
    await database.enqueue(series("a", 20));
    await relay.start();
    const killed = `select count(pg_terminate_backend(pid)) from pg_stat_activity
      where datname = current_database() and query like '%; copy (%' and wait_event_type = 'Lock'`;
    await until(async () => (await database.value(killed)) === "1", { what: "a page that waits" });
    await other.query("commit");
    await until(() => publisher.firsts("a").length === 20, { what: "all of them" });
    expect(publisher.firsts("a")).toEqual(upTo(20));
    await relay.stop();
    await pool.end();
    expect(unheard).toEqual([]);
  });

  it("because whatever watches the client throws when it was sent: nothing is left to fail unheard", async () => {
    const unheard: unknown[] = [];
    const hear = (reason: unknown) => unheard.push(reason);
    process.on("unhandledRejection", hear);
    let left = 2;
    const pool = wrappedPool((send, args) => {
      const result = send(...args);
      if ("handleCopyData" in Object(args[0]) && left-- > 0) throw new Error("cannot watch this");
      return result;
    });
    relay = relayOn(pool, { batchSize: 2 });
    await database.enqueue(series("a", 20));
    await relay.start();
    await until(() => publisher.firsts("a").length === 20, { what: "all of them" });
    await relay.stop();
    await pool.end();
    process.off("unhandledRejection", hear);
    expect(unheard).toEqual([]);
    expect(publisher.firsts("a")).toEqual(upTo(20));
  });

  it("because its connection came back to the pool in an older transaction: what that cannot see is not skipped", async () => {
    const { pool } = database;
    const forgotten = await pool.connect();
    await forgotten.query("begin isolation level repeatable read; select 1");
    const left = [forgotten];
    const client: PgPool = {
      query: (config) => pool.query(config as never),
      connect: async () => left.pop() ?? pool.connect(),
      get totalCount() {
        return pool.totalCount;
      },
    };
    relay = relayOn(client, { batchSize: 10 });
    await database.enqueue(series("a", 20));
    await relay.start();
    await until(() => publisher.firsts("a").length === 20, { what: "all of them" });
    expect(publisher.firsts("a")).toEqual(upTo(20));
    expect(left).toEqual([]);
  });

  it("because something on the way lost a row: the rest does not count as complete", async () => {
    let left = 2;
    const pool = wrappedPool((send, [first, ...rest]) => {
      if (!("handleCopyData" in Object(first))) return send(first, ...rest);
      const copy = first as Copy;
      const { handleCopyData } = copy;
      return send({ ...copy, handleCopyData: (row: object) => void (left-- === 1 || handleCopyData(row)) }, ...rest);
    });
    relay = relayOn(pool, { batchSize: 10 });
    await database.enqueue(series("a", 30));
    await relay.start();
    await until(() => publisher.firsts("a").length === 30, { what: "all of them" });
    expect(publisher.firsts("a")).toEqual(upTo(30));
    await relay.stop();
    await pool.end();
  });

  it.each([
    ["bodies", 10, 60, { payload: "x".repeat(1_000_000) }],
    ["headers", 100, 800, { payload: "", headers: { note: "x".repeat(50_000) } }],
  ])("never: large %s are not all held at once", async (_, batchSize, large, fields) => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const held: number[] = [];
    let count = 0;
    relay = createRelay({
      store: database.store,
      name: "orders",
      publisher: {
        keepsKeyOrder: true,
        publish(batch) {
          count += batch.length;
          collect();
          const { heapUsed, arrayBuffers } = process.memoryUsage();
          held.push(heapUsed + arrayBuffers);
          return Promise.resolve(batch.map(() => ({ status: "published" as const })));
        },
      },
      batchSize,
      batchBytes: 1_000_000,
      maintenance: false,
    });
    await relay.start();
    // Small ones, so that it reads several batches at once from now on.
    await database.enqueue(series("a", 1000));
    await until(() => count === 1000, { what: "small messages", timeoutMs: 60_000 });
    const before = held.at(-1)!;
    await using writer = await database.connect();
    await writer.query("begin");
    const message = { stream: "orders", type: "changed", ...fields };
    for (let n = 0; n < large; n += 10)
      await database.outbox.enqueue(
        writer.client,
        Array.from({ length: 10 }, () => message),
      );
    await writer.query("commit");
    await until(() => count === 1000 + large, { what: "large messages", timeoutMs: 60_000 });
    expect(Math.max(...held) - before).toBeLessThan(20_000_000);
  });
});
