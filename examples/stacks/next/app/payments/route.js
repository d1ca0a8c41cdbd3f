import { pool } from "../../lib/messaging.js";

export const runtime = "nodejs";
export const dynamic = "force-dynamic";

export async function GET() {
  const { rows } = await pool.query("select order_id, amount from payments order by order_id");
  return Response.json(rows);
}
