import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { payments, type Order } from "./database.ts";
import { health, placeOrder, start, stop } from "./messaging.ts";
import { page } from "./page.ts";

const app = new Hono();
app.all("/txbox", (context) => page(context.req.raw));
app.all("/txbox/*", (context) => page(context.req.raw));
app.post("/orders", async (context) => {
  const order = await context.req.json<Order>();
  await placeOrder(order);
  return context.json({ orderId: order.orderId });
});
app.get("/payments", async (context) => context.json(await payments()));
app.get("/readyz", async (context) => {
  const report = await health.ready();
  return context.json(report, report.ok ? 200 : 503);
});

await start();
const options = { fetch: app.fetch, port: Number(process.env.PORT ?? 3000), hostname: "127.0.0.1" };
const server = serve(options, () => console.log("listening"));
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    void page.close(); // ends live connections, which the server would wait for
    server.close(() => void stop());
  });
}
