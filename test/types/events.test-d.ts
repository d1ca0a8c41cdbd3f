import type { PGlite, Transaction } from "@electric-sql/pglite";
import type { Pool, PoolClient } from "pg";
import type { Sql, TransactionSql } from "postgres";
import { createInbox, createOutbox, defineEvents, type HandledMessage, type Store } from "../../src/index.ts";
import { createPostgresStore, type PostgresBridge, type PostgresTx } from "../../src/stores/postgres/index.ts";

/** Compiled, never run: each line here is a promise about types. */
declare const pool: Pool;
declare const client: PoolClient;
declare const sql: Sql;
declare const db: PGlite;

type Same<A, B> = [A, B] extends [B, A] ? true : false;
declare function same<A, B>(...differ: Same<A, B> extends true ? [] : [never]): void;

interface Events {
  order_created: { orderId: string; total: number };
  order_paid: { orderId: string };
}

const store = createPostgresStore({ client: pool });
same<
  typeof store.ledger extends { transaction<T>(run: (tx: infer Tx) => Promise<T>): Promise<T> } ? Tx : never,
  PoolClient
>();

export async function enqueueing(): Promise<void> {
  const outbox = createOutbox<Events>({ store });
  const paid = { stream: "orders", type: "order_paid", payload: { orderId: "1" } } as const;
  const one = await outbox.enqueue(client, {
    stream: "orders",
    type: "order_created",
    payload: { orderId: "1", total: 2 },
  });
  same<typeof one.duplicate, boolean>();
  const many = await outbox.enqueue(client, [
    { stream: "orders", type: "order_created", payload: { orderId: "1", total: 2 } },
    { stream: "orders", type: "order_paid", payload: { orderId: "1" }, key: "1", deliverAt: new Date() },
  ]);
  same<typeof many, { id: string; duplicate: boolean }[] extends typeof many ? typeof many : never>();

  // @ts-expect-error the transaction is required
  await outbox.enqueue(paid);
  // @ts-expect-error the transaction must be something
  await outbox.enqueue(undefined, paid);
  // @ts-expect-error no such type
  await outbox.enqueue(client, { stream: "orders", type: "order_payed", payload: { orderId: "1" } });
  // @ts-expect-error the payload of another type
  await outbox.enqueue(client, { stream: "orders", type: "order_created", payload: { orderId: "1" } });
  // @ts-expect-error no such field
  await outbox.enqueue(client, { ...paid, delverAt: new Date() });
  // @ts-expect-error in an array, each payload belongs to its type
  await outbox.enqueue(client, [{ stream: "orders", type: "order_created", payload: { orderId: "1" } }]);
  // @ts-expect-error no such option
  createOutbox<Events>({ store, maxPayload: 1 });

  // With the events as a value the transaction is checked, too.
  const strict = createOutbox({ store, events: defineEvents<Events>() });
  await strict.enqueue(client, paid);
  // @ts-expect-error a pool is no transaction
  await strict.enqueue(pool, paid);
  // @ts-expect-error postgres.js itself is no transaction
  await strict.enqueue(sql, paid);
  // @ts-expect-error PGlite itself is no transaction
  await strict.enqueue(db, paid);
  // @ts-expect-error no such type
  await strict.enqueue(client, { stream: "orders", type: "order_payed", payload: { orderId: "1" } });
  await sql.begin((tx) => strict.enqueue(tx, paid));
  await db.transaction((tx) => strict.enqueue(tx, paid));

  const permissive = createOutbox({ store });
  await permissive.enqueue(client, { stream: "s", type: "anything", payload: [1, "2", null] });
}

export function handling(): void {
  const inbox = createInbox({ store, consumer: "payments", events: defineEvents<Events>() });
  inbox
    .on("order_created", async (tx, message, { signal }) => {
      same<typeof tx, PoolClient>();
      same<typeof message, HandledMessage<"order_created", { orderId: string; total: number }>>();
      same<typeof signal, AbortSignal>();
      await tx.query("insert into payment values ($1)", [message.payload.orderId]);
    })
    .on("order_paid", async (_, { payload }) => same<typeof payload, { orderId: string }>());
  // @ts-expect-error no such type
  inbox.on("order_payed", async () => undefined);
  // @ts-expect-error no such field in the payload
  inbox.on("order_paid", async (_, { payload }) => payload.total);

  // The short form knows the events, and enough of the transaction to run a statement.
  const short = createInbox<Events>({ store, consumer: "payments" });
  short.on("order_created", async (tx, { payload }) => {
    await tx.query("insert into payment values ($1, $2)", [payload.orderId, payload.total]);
    // @ts-expect-error no such field
    await tx.query("select 1", [payload.totl]);
  });
  short.on("order_paid", async (tx: PoolClient) => tx.escapeLiteral("x"));
  createInbox<Events, PoolClient>({ store, consumer: "payments" }).on("order_paid", async (tx) =>
    tx.escapeLiteral("x"),
  );

  createInbox({ store: createPostgresStore({ client: sql }), consumer: "c" }).on("t", async (tx, { payload }) => {
    same<typeof tx, TransactionSql>();
    same<typeof payload, unknown>();
    await tx`select 1`;
  });
  createInbox({ store: createPostgresStore({ client: db }), consumer: "c" }).on("t", async (tx) =>
    same<typeof tx, Transaction>(),
  );
  // @ts-expect-error a consumer is needed
  createInbox({ store });

  const anyStore: Store = store;
  void anyStore;
  const anyTx: PostgresTx[] = [client];
  void anyTx;
}

interface OrmTransaction {
  savepoint(): Promise<void>;
}
interface OrmRunner extends OrmTransaction {
  start(): Promise<void>;
}
declare const orm: PostgresBridge<OrmTransaction, OrmTransaction | OrmRunner>;
declare const ormTransaction: OrmTransaction;

export async function bridging(): Promise<void> {
  const ofOrm = createPostgresStore({ client: orm });
  const outbox = createOutbox({ store: ofOrm, events: defineEvents<Events>() });
  const paid = { stream: "orders", type: "order_paid", payload: { orderId: "1" } } as const;
  await outbox.enqueue(ormTransaction, paid);
  // The driver's own are taken as well.
  await outbox.enqueue(client, paid);
  await outbox.withTransaction(ormTransaction, () => outbox.enqueueHere(paid));
  // @ts-expect-error the library itself is no transaction
  await outbox.enqueue(orm, paid);
  // @ts-expect-error no such field in the payload
  await outbox.enqueueHere({ stream: "orders", type: "order_paid", payload: { id: "1" } });
  createInbox({ store: ofOrm, consumer: "payments", events: defineEvents<Events>() }).on("order_paid", async (tx) => {
    same<typeof tx, OrmTransaction>();
    await tx.savepoint();
  });
  // @ts-expect-error a store of a driver takes no transaction of a library
  await createOutbox({ store, events: defineEvents<Events>() }).enqueue(ormTransaction, paid);
  const anyStore: Store = ofOrm;
  void anyStore;
}
