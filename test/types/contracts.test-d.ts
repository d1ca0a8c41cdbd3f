import { type } from "arktype";
import type { PGlite, Transaction } from "@electric-sql/pglite";
import type { ClientSession, MongoClient } from "mongodb";
import type { Pool, PoolClient } from "pg";
import type { Sql, TransactionSql } from "postgres";
import * as v from "valibot";
import { z } from "zod";
import {
  createInbox,
  createOutbox,
  createReconciler,
  defineEvents,
  type Events,
  type FromJson,
  type EventMapOf,
  type MessageOf,
  type NewMessageOf,
  type SqlTransaction,
} from "../../src/index.ts";
import type { TxboxOutbox } from "../../src/frameworks/nestjs/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";

/** Compiled, never run: each line here is a promise about types. */
declare const pool: Pool;
declare const client: PoolClient;

type Same<A, B> = [A, B] extends [B, A] ? true : false;
declare function same<A, B>(...differ: Same<A, B> extends true ? [] : [never]): void;

const store = createPostgresStore({ client: pool });

interface OrderV1 {
  orderId: string;
  total: string;
}

const events = defineEvents({
  order_created: {
    stream: "orders",
    version: 2,
    schema: z.object({ orderId: z.string(), total: z.number(), at: z.coerce.date(), note: z.string().default("") }),
    upcast: { 1: (old: OrderV1) => ({ ...old, total: Number(old.total) }) },
  },
  order_paid: { stream: "payments", schema: v.object({ orderId: v.string(), at: v.pipe(v.string(), v.toDate()) }) },
  order_sent: { stream: "orders", schema: type({ orderId: "string", "carrier?": "'post' | 'bike'" }) },
});

export async function enqueueing(): Promise<void> {
  const outbox = createOutbox({ store, events });
  const payload = { orderId: "1", total: 2, at: new Date() };
  const one = await outbox.enqueue(client, { type: "order_created", payload, key: "1" });
  same<typeof one, { id: string; duplicate: boolean }>();
  await outbox.enqueue(client, { type: "order_created", stream: "orders", payload });
  await outbox.enqueue(client, { type: "order_paid", payload: { orderId: "1", at: "2026-01-02" } });
  const many = await outbox.enqueue(client, [
    { type: "order_created", payload },
    { type: "order_sent", payload: { orderId: "1", carrier: "bike" } },
  ]);
  same<typeof many, { id: string; duplicate: boolean }[]>();
  const message: NewMessageOf<Map> = { type: "order_sent", payload: { orderId: "1" } };
  await outbox.enqueue(client, message);

  // @ts-expect-error the stream of another type
  await outbox.enqueue(client, { type: "order_created", stream: "payments", payload });
  // @ts-expect-error a field is missing
  await outbox.enqueue(client, { type: "order_created", payload: { orderId: "1", at: new Date() } });
  // @ts-expect-error a field of the wrong type
  await outbox.enqueue(client, { type: "order_sent", payload: { orderId: 1 } });
  // @ts-expect-error not one of the values
  await outbox.enqueue(client, { type: "order_sent", payload: { orderId: "1", carrier: "car" } });
  // @ts-expect-error what the schema takes is a text, not what it makes of it
  await outbox.enqueue(client, { type: "order_paid", payload: { orderId: "1", at: new Date() } });
  // @ts-expect-error no such type
  await outbox.enqueue(client, { type: "order_creatd", payload });
  // @ts-expect-error a pool is no transaction
  await outbox.enqueue(pool, { type: "order_created", payload });
}

type Map = typeof events extends Events<infer Of extends object> ? Of : never;

export function handling(): void {
  createInbox({ store, consumer: "payments", events })
    .on("order_created", async (tx, { payload, stream }) => {
      same<typeof tx, PoolClient>();
      same<typeof payload, { orderId: string; total: number; at: Date; note: string }>();
      same<typeof stream, string | undefined>();
    })
    .on("order_paid", async (_, { payload }) => same<typeof payload, { orderId: string; at: Date }>())
    // @ts-expect-error no such field in the payload
    .on("order_sent", async (_, { payload }) => payload.total);
  // @ts-expect-error no such type
  createInbox({ store, consumer: "payments", events }).on("order_creatd", async () => undefined);

  createReconciler({
    store,
    events,
    find: () => [{ id: "1" }],
    toMessage: ({ id }) => ({ type: "order_sent" as const, payload: { orderId: id }, id: `sent:${id}` }),
  });
}

export function defining(): void {
  // @ts-expect-error a schema is needed
  defineEvents({ order_created: { stream: "orders" } });
  // @ts-expect-error a stream is needed
  defineEvents({ order_created: { schema: z.string() } });
  // @ts-expect-error a type is no schema
  defineEvents({ order_created: { stream: "orders", schema: String } });
  // @ts-expect-error the definitions go through defineEvents
  createOutbox({ store, events: { order_created: { stream: "orders", schema: z.string() } } });
}

interface Plain {
  order_created: { orderId: string; at: Date; lines: { sku: string; until?: Date }[]; total: number & { cents: true } };
  order_paid: { orderId: string };
  anything: unknown;
  file: Uint8Array;
}

/** Without a schema a handler gets what JSON gives back. */
export async function plain(): Promise<void> {
  createInbox<Plain>({ store, consumer: "payments" })
    .on("order_created", async (_, { payload }) => {
      same<typeof payload.at, string>();
      same<typeof payload.lines, { sku: string; until?: string }[]>();
      same<typeof payload.total, number & { cents: true }>();
      // @ts-expect-error it was a Date when it was enqueued
      payload.at.getTime();
    })
    .on("order_paid", async (_, { payload }) => same<typeof payload, Plain["order_paid"]>())
    .on("anything", async (_, { payload }) => same<typeof payload, unknown>())
    .on("file", async (_, { payload }) => same<typeof payload, Uint8Array>());
  const total = 1 as number & { cents: true };
  const outbox = createOutbox<Plain>({ store });
  await outbox.enqueue(client, {
    stream: "orders",
    type: "order_created",
    payload: { orderId: "1", at: new Date(), lines: [], total },
  });
  // @ts-expect-error without a contract nothing says the stream
  await outbox.enqueue(client, { type: "order_paid", payload: { orderId: "1" } });
}

type Tree = { name: string; children: Tree[] };
type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
same<FromJson<Tree>, Tree>();
same<FromJson<Json>, Json>();
interface Node {
  name: string;
  at: Date;
  children: Node[];
}
interface NodeAsJson {
  name: string;
  at: string;
  children: NodeAsJson[];
}
same<FromJson<Node>, NodeAsJson>();
same<FromJson<[Date, number]>, [string, number]>();
same<FromJson<{ a: Date | null; b?: Date; readonly c: () => void }>, { a: string | null; b?: string }>();
same<FromJson<{ money: { toJSON(): { cents: number } } }>, { money: { cents: number } }>();

/** Of events as a value, as of an event map: what a method with `@OnMessage` and `TxboxOutbox` name. */
export function named(): void {
  interface Plain {
    order_created: { at: Date };
  }
  same<EventMapOf<typeof events>, typeof events extends Events<infer Map> ? Map : never>();
  same<EventMapOf<Plain>, Plain>();
  same<EventMapOf<Record<string, unknown>>, Record<string, unknown>>();
  type Created = MessageOf<typeof events, "order_created">;
  same<Created["payload"], { orderId: string; total: number; at: Date; note: string }>();
  same<Created["type"], "order_created">();
  same<MessageOf<Plain, "order_created">["payload"], { at: string }>();
  // @ts-expect-error no such type
  same<MessageOf<typeof events, "order_payed">["type"], string>();
}

export async function injected(
  outbox: TxboxOutbox<typeof events>,
  plain: TxboxOutbox<{ paid: { id: string } }>,
  exact: TxboxOutbox<typeof events, PoolClient>,
  roots: { sql: Sql; pglite: PGlite; mongo: MongoClient; drizzle: { $client: Pool } },
  transactions: { sql: TransactionSql; pglite: Transaction; session: ClientSession; any: SqlTransaction },
): Promise<void> {
  const sent = { type: "order_sent", payload: { orderId: "1" } } as const;
  await exact.enqueue(client, sent);
  for (const tx of Object.values(transactions)) await outbox.enqueue(tx, sent);
  await outbox.withTransaction(client, () => outbox.enqueueHere(sent));
  // @ts-expect-error a pool
  await outbox.enqueue(pool, sent);
  // @ts-expect-error a pool
  await plain.lockKey(pool, { stream: "s", key: "k" });
  // @ts-expect-error the instance of postgres.js
  await outbox.enqueue(roots.sql, sent);
  // @ts-expect-error the instance of PGlite
  await outbox.enqueue(roots.pglite, sent);
  // @ts-expect-error a MongoClient
  await outbox.enqueue(roots.mongo, sent);
  // @ts-expect-error an ORM itself
  await outbox.enqueue(roots.drizzle, sent);
  // @ts-expect-error a transaction of another kind than the named one
  await exact.enqueue(transactions.session, sent);
  await outbox.enqueue(client, { type: "order_sent", payload: { orderId: "1" } });
  await plain.enqueue(client, { stream: "s", type: "paid", payload: { id: "1" } });
  // @ts-expect-error the payload of another type
  await outbox.enqueue(client, { type: "order_sent", payload: { orderId: 1 } });
  // @ts-expect-error no such type
  await plain.enqueue(client, { stream: "s", type: "payed", payload: { id: "1" } });
}
