import pg from "pg";
import { createInbox, createOutbox, createRelay, PermanentError } from "txbox";
import { createInProcessBus } from "txbox/in-process";
import { createPostgresStore } from "txbox/postgres";

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on("error", console.error); // a broken idle connection must not end the process

export const store = createPostgresStore({ client: pool });
export const outbox = createOutbox({ store });

const bus = createInProcessBus();
const inbox = createInbox({ store, consumer: "payments" });
inbox.on("order_created", async (tx, { payload }) => {
  if (payload.total < 0) throw new PermanentError("a total below zero");
  await tx.query("insert into payments values ($1, $2)", [payload.orderId, payload.total]);
});
export const relay = createRelay({ store, name: "payments", publisher: bus });

let listening;

/** Publishes what is there and returns: for a route that a schedule calls. */
export async function drain(deadlineMs) {
  listening ??= inbox.start(bus);
  await listening;
  return relay.drainOnce({ deadlineMs });
}

/** Once, when a server starts. */
export async function prepare() {
  await store.migrator.migrate();
  await pool.query("create table if not exists orders (id text primary key, total int)");
  await pool.query("create table if not exists payments (order_id text, amount int)");
}
