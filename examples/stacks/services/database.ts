import pg from "pg";
import { createPostgresStore } from "txbox/postgres";

export interface Events {
  order_created: { orderId: string; total: number };
}

export interface Order {
  orderId: string;
  total: number;
}

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on("error", console.error); // a broken idle connection must not end the process
export const store = createPostgresStore({ client: pool });

export async function prepare(): Promise<void> {
  await store.migrator.migrate();
  await pool.query("create table if not exists orders (id text primary key, total int)");
  await pool.query("create table if not exists payments (order_id text, amount int)");
}

/** A transaction of the application. */
export async function inTransaction<T>(run: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const tx = await pool.connect();
  try {
    await tx.query("begin");
    const result = await run(tx);
    await tx.query("commit");
    return result;
  } catch (error) {
    await tx.query("rollback");
    throw error;
  } finally {
    tx.release();
  }
}

export async function payments(): Promise<unknown[]> {
  return (await pool.query("select order_id, amount from payments order by order_id")).rows;
}
