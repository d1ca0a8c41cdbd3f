import { outbox, pool } from "../../lib/messaging.js";

export const runtime = "nodejs";
export const dynamic = "force-dynamic";

export async function POST(request) {
  const { orderId, total } = await request.json();
  const tx = await pool.connect();
  try {
    await tx.query("begin");
    await tx.query("insert into orders values ($1, $2)", [orderId, total]);
    await outbox.enqueue(tx, { stream: "orders", type: "order_created", key: orderId, payload: { orderId, total } });
    await tx.query("commit");
  } catch (error) {
    await tx.query("rollback");
    throw error;
  } finally {
    tx.release();
  }
  return Response.json({ orderId });
}
