import { deepStrictEqual as same, rejects } from "node:assert/strict";
import { drizzle } from "drizzle-orm/node-postgres";
import { drizzle as drizzleOnPostgresJs } from "drizzle-orm/postgres-js";
import pg from "pg";
import postgres from "postgres";
import { createOutbox, defineEvents } from "txbox";
import { fromDrizzle } from "txbox/drizzle";
import { createPostgresStore } from "txbox/postgres";
import { created, type Events } from "../shared/events.ts";
import * as schema from "./schema.ts";

const refused = { code: "no_transaction", message: /has ended/ };

/** Transactions of another instance of Drizzle on the same client, and nested ones, after their end. */
async function refuseEnded(db: ReturnType<typeof onPool>, beside: ReturnType<typeof onPool>): Promise<void> {
  const store = createPostgresStore({ client: fromDrizzle(db) });
  const outbox = createOutbox({ store, events: defineEvents<Events>() });
  for (const instance of [db, beside]) {
    const ended = await instance.transaction(async (tx) => tx);
    await db.transaction(async (tx) => {
      await tx.select().from(schema.order);
      await rejects(outbox.enqueue(ended, created("late", 1)), refused);
      let nested = await tx.transaction(async (inner) => inner);
      await rejects(outbox.enqueue(nested, created("late", 1)), refused);
      await tx
        .transaction(async (inner) => {
          nested = inner;
          await outbox.enqueue(inner, created("undone", 1));
          inner.rollback();
        })
        .catch(() => undefined);
      await rejects(outbox.enqueue(nested, created("late", 1)), refused);
      await outbox.enqueue(tx, created("beside", 1));
    });
  }
  const count = async (key: string): Promise<number> => (await store.admin.find({ key })).length;
  same([await count("beside"), await count("late"), await count("undone")], [2, 0, 0]);
}

const onPool = (client: pg.Pool) => drizzle({ client, schema });

export async function besideOnNodePostgres(url: string): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  await refuseEnded(onPool(pool), onPool(pool));
  console.log("Drizzle on node-postgres: ended and nested transactions, of another instance too, are refused");
  await pool.end();
}

export async function besideOnPostgresJs(url: string): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  const open = () => drizzleOnPostgresJs({ client: sql, schema }) as unknown as ReturnType<typeof onPool>;
  await refuseEnded(open(), open());
  console.log("Drizzle on postgres.js: ended and nested transactions, of another instance too, are refused");
  await sql.end({ timeout: 5 });
}
