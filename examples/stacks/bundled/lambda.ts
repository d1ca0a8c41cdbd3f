import pg from "pg";
import { createOutbox, createRelay, publishEach } from "txbox";
import { createPostgresStore } from "txbox/postgres";

// Made once for each instance, and used again by its later calls.
const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"], max: 2 });
const store = createPostgresStore({ client: pool });
const outbox = createOutbox({ store });
const sent: unknown[] = [];
const relay = createRelay({
  store,
  name: "to-queue",
  publisher: publishEach(async ({ body }) => void sent.push(JSON.parse(String(body)))),
});

interface Context {
  getRemainingTimeInMillis(): number;
}

/** The function behind the API: it enqueues and does not publish. */
export async function placeOrder(event: { orderId: string }): Promise<{ statusCode: number }> {
  const tx = await pool.connect();
  try {
    await tx.query("begin");
    await outbox.enqueue(tx, { stream: "orders", type: "order_created", key: event.orderId, payload: event });
    await tx.query("commit");
  } catch (error) {
    await tx.query("rollback");
    throw error;
  } finally {
    tx.release();
  }
  return { statusCode: 202 };
}

/** The function that a schedule calls: publishes what is there, and ends in time. */
export async function drain(_: unknown, context: Context): Promise<{ published: number; sent: unknown[] }> {
  const deadlineMs = Math.max(1000, context.getRemainingTimeInMillis() - 5000);
  const { published } = await relay.drainOnce({ deadlineMs });
  await store.maintenance.run();
  return { published, sent: sent.splice(0) };
}
