import { PGlite } from "@electric-sql/pglite";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import { createInbox, createOutbox } from "../../../src/index.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until, type TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";

type Events = {
  order_placed: { orderId: string };
  payment_taken: { orderId: string };
};

describe.skipIf(!hasPostgres())("modules of one application", () => {
  let orders: TestDatabase;
  let payments: TestDatabase;
  let ordersPool: pg.Pool;
  let paymentsPool: pg.Pool;

  beforeAll(async () => {
    [orders, payments] = [await testDatabase(), await testDatabase()];
    ordersPool = new pg.Pool({ connectionString: orders.url, max: 20 });
    paymentsPool = new pg.Pool({ connectionString: payments.url, max: 20 });
  });
  afterAll(async () => {
    await ordersPool.end();
    await paymentsPool.end();
    await orders.drop();
    await payments.drop();
  });

  it("talk over two databases; a failing one holds up no other module", async () => {
    const ordersStore = createPostgresStore({ client: ordersPool });
    const paymentsStore = createPostgresStore({ client: paymentsPool });
    await ordersStore.migrator.migrate();
    await paymentsStore.migrator.migrate();
    await ordersPool.query("create table orders (id text primary key, paid int default 0)");
    await paymentsPool.query("create table payments (order_id text)");

    const ordersOutbox = createOutbox<Events>({ store: ordersStore });
    const paymentsOutbox = createOutbox<Events>({ store: paymentsStore });

    // payments: receive → change → send, in its own database.
    const toPayments = createInProcessBus();
    const paymentsInbox = createInbox<Events>({ store: paymentsStore, consumer: "payments" });
    paymentsInbox.on("order_placed", async (tx, { payload: { orderId } }) => {
      await tx.query("insert into payments values ($1)", [orderId]);
      await paymentsOutbox.enqueue(tx, {
        stream: "payments",
        type: "payment_taken",
        key: orderId,
        payload: { orderId },
      });
    });
    // orders hears of payments.
    const toOrders = createInProcessBus();
    const ordersInbox = createInbox<Events>({ store: ordersStore, consumer: "orders" });
    const causes: unknown[] = [];
    ordersInbox.on("payment_taken", async (tx, { payload: { orderId }, headers }) => {
      causes.push(headers.causationPath, headers.correlationId);
      await tx.query("update orders set paid = paid + 1 where id = $1", [orderId]);
    });
    // search always fails.
    const toSearch = createInProcessBus();
    const searchInbox = createInbox<Events>({ store: ordersStore, consumer: "search" });
    searchInbox.on("order_placed", async () => Promise.reject(new Error("search is broken")));

    await paymentsInbox.start(toPayments);
    await ordersInbox.start(toOrders);
    await searchInbox.start(toSearch);
    const relays = [
      createRelay({ store: ordersStore, name: "payments", publisher: toPayments }),
      createRelay({ store: ordersStore, name: "search", publisher: toSearch }),
      createRelay({ store: paymentsStore, name: "orders", publisher: toOrders }),
    ];
    for (const relay of relays) await relay.start();

    const ids: string[] = [];
    for (let i = 0; i < 50; i++) {
      const client = await ordersPool.connect();
      const orderId = `o${i}`;
      await client.query("begin");
      await client.query("insert into orders values ($1)", [orderId]);
      const { id } = await ordersOutbox.enqueue(client, {
        stream: "orders",
        type: "order_placed",
        key: orderId,
        payload: { orderId },
      });
      await client.query(i % 5 === 4 ? "rollback" : "commit");
      client.release();
      if (i % 5 !== 4) ids.push(id);
    }
    const paid = async () =>
      (await ordersPool.query<{ n: string }>("select count(*) n from orders where paid = 1")).rows[0]?.n === "40";
    await until(paid, { what: "40 paid orders", timeoutMs: 60_000 });
    expect((await ordersPool.query("select paid, count(*)::int from orders group by 1")).rows).toEqual([
      { paid: 1, count: 40 },
    ]);
    expect(
      (await paymentsPool.query("select count(*)::int, count(distinct order_id)::int as distinct from payments")).rows,
    ).toEqual([{ count: 40, distinct: 40 }]);
    expect(causes.filter((_, i) => i % 2 === 0)).toEqual(
      Array.from({ length: 40 }, () => [["payments", "order_placed"]]),
    );
    expect(new Set(causes.filter((_, i) => i % 2 === 1))).toEqual(new Set(ids));
    // The failing relay goes at its own pace: the others may be through before it.
    const failed = async () =>
      (
        await ordersPool.query<{ n: string }>(
          "select count(*) n from txbox.receipt where consumer = 'search' and status = 'failed'",
        )
      ).rows[0]?.n === "40";
    await until(failed, { what: "40 failures of search", timeoutMs: 60_000 });
    for (const relay of relays) await relay.stop();
    for (const inbox of [paymentsInbox, ordersInbox, searchInbox]) await inbox.stop();
  });

  it("store first and let a local relay handle, in order and with retries", async () => {
    const store = createPostgresStore({ client: paymentsPool, schema: "stored" });
    await store.migrator.migrate();
    const inbox = createInbox<Events>({ store, consumer: "audit", mode: "stored" });
    const seen: string[] = [];
    let failures = 0;
    inbox.on("order_placed", async (_, { payload: { orderId }, stream, position }) => {
      if (orderId === "2" && failures++ < 2) throw new Error("not yet");
      seen.push(`${orderId}:${stream}:${position}`);
    });
    for (let i = 0; i < 6; i++) {
      const message = {
        id: `broker-${i}`,
        type: "order_placed",
        key: "k",
        stream: "orders",
        position: BigInt(i),
        headers: {},
        body: Buffer.from(`{"orderId":"${i}"}`),
      };
      expect([await inbox.handle(message), await inbox.handle(message)]).toEqual(["stored", "duplicate"]);
    }
    const relay = createRelay({
      store,
      name: "inbox.audit",
      streams: ["inbox.audit"],
      publisher: inbox.storedPublisher(),
      backoff: { baseMs: 10, maxMs: 50 },
    });
    await relay.start();
    await until(async () => seen.length === 6, { what: "six handled", timeoutMs: 60_000 });
    await relay.stop();
    expect(seen).toEqual([0, 1, 2, 3, 4, 5].map((i) => `${i}:orders:${i}`));
    const receipts = await paymentsPool.query("select status, max(attempts) from stored.receipt group by 1");
    expect(receipts.rows).toEqual([{ status: "processed", max: 3 }]);
  });
});

describe("PGlite", () => {
  it("says so when a handler would wait for itself", async () => {
    const db = new PGlite();
    const store = createPostgresStore({ client: db });
    await store.migrator.migrate();
    const inbox = createInbox({ store, consumer: "c" });
    const message = (id: string) => ({ id, type: "t", body: "1", headers: {} });
    for (const wrong of [
      () => db.query("select 1"),
      () => db.exec("select 1"),
      () => db.transaction(async () => 1),
      () => db.sql`select 1`,
    ]) {
      await expect(inbox.handle(message("a"), wrong)).rejects.toMatchObject({
        code: "no_transaction",
        fix: expect.stringContaining("tx.query"),
      });
    }
    // What a handler leaves running may use the database once the transaction is over.
    let later: Promise<unknown> | undefined;
    const over = Promise.withResolvers<void>();
    await inbox.handle(message("b"), async () => {
      later = over.promise.then(() => db.query("select 1 as one"));
    });
    over.resolve();
    expect(await later).toMatchObject({ rows: [{ one: 1 }] });
    await db.close();
  });
});
