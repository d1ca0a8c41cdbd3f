import { drain } from "../../lib/messaging.js";

export const runtime = "nodejs";
export const dynamic = "force-dynamic";

/** Called by a schedule, such as every minute. */
export async function GET(request) {
  if (request.headers.get("authorization") !== `Bearer ${process.env.CRON_SECRET}`) {
    return new Response("no", { status: 401 });
  }
  const { published } = await drain(20_000);
  return Response.json({ published });
}
