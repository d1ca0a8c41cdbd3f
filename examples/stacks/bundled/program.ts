import pg from "pg";
import { createInbox, createOutbox, createRelay } from "txbox";
import { createAdmin } from "txbox/admin";
import { createInProcessBus } from "txbox/in-process";
import { createPostgresStore } from "txbox/postgres";

/** Migrate, enqueue, relay, handle; then what became of it, as JSON. An application in one file, as bundlers make it. */
export async function run(): Promise<object> {
  const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
  const store = createPostgresStore({ client: pool });
  await store.migrator.migrate();
  await pool.query("create table if not exists payments (order_id text, amount int)");
  const outbox = createOutbox({ store });
  const tx = await pool.connect();
  await tx.query("begin");
  await outbox.enqueue(tx, {
    stream: "orders",
    type: "order_created",
    key: "o-1",
    payload: { orderId: "o-1", total: 42 },
  });
  await tx.query("commit");
  tx.release();
  const inbox = createInbox<{ order_created: { orderId: string; total: number } }>({ store, consumer: "payments" });
  inbox.on("order_created", async (own, { payload }) => {
    await own.query("insert into payments values ($1, $2)", [payload.orderId, payload.total]);
  });
  const bus = createInProcessBus();
  await inbox.start(bus);
  const { published } = await createRelay({ store, name: "payments", publisher: bus }).drainOnce();
  await inbox.stop();
  const { rows } = await pool.query("select order_id, amount from payments");
  const { rows: foreign } = await pool.query("select to_regclass('public.foreign_table') as found");
  const admin = createAdmin({ stores: { shop: store } });
  const page = await admin(new Request("http://localhost/"), { remoteAddress: "127.0.0.1" });
  const [script] = /page-[0-9a-f]{12}\.js/.exec(await page.text()) ?? [];
  const code = await admin(new Request(`http://localhost/${script}`), { remoteAddress: "127.0.0.1" });
  const size = (await code.text()).length;
  await pool.end();
  return { published, payments: rows, foreign: foreign[0].found, page: size > 5000 };
}
