import express from "express";
import { toNodeHandler } from "txbox/admin";
import { payments, type Order } from "./database.ts";
import { health, placeOrder, start, stop } from "./messaging.ts";
import { page } from "./page.ts";

const app = express();
app.use(express.json());
app.post("/orders", async (request, response) => {
  await placeOrder(request.body as Order);
  response.json({ orderId: (request.body as Order).orderId });
});
app.use("/txbox", toNodeHandler(page));
app.get("/payments", async (_, response) => void response.json(await payments()));
app.get("/readyz", async (_, response) => {
  const report = await health.ready();
  response.status(report.ok ? 200 : 503).json(report);
});

await start();
const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => console.log("listening"));
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    void page.close(); // ends live connections, which the server would wait for
    server.close(() => void stop());
  });
}
