import { createServer, type IncomingMessage } from "node:http";
import { toNodeHandler } from "txbox/admin";
import { payments, type Order } from "./database.ts";
import { health, placeOrder, start, stop } from "./messaging.ts";
import { page } from "./page.ts";

const showPage = toNodeHandler(page);

async function orderOf(request: IncomingMessage): Promise<Order> {
  const parts: Uint8Array[] = [];
  for await (const part of request) parts.push(part as Uint8Array);
  return JSON.parse(Buffer.concat(parts).toString()) as Order;
}

async function answer(request: IncomingMessage): Promise<{ status?: number; body: unknown }> {
  switch (`${request.method} ${request.url}`) {
    case "POST /orders": {
      const order = await orderOf(request);
      await placeOrder(order);
      return { body: { orderId: order.orderId } };
    }
    case "GET /payments":
      return { body: await payments() };
    case "GET /readyz": {
      const report = await health.ready();
      return { status: report.ok ? 200 : 503, body: report };
    }
    default:
      return { status: 404, body: {} };
  }
}

await start();
const server = createServer((request, response) => {
  if (request.url === "/txbox" || request.url?.startsWith("/txbox/") || request.url?.startsWith("/txbox?")) {
    void showPage(request, response);
    return;
  }
  answer(request).then(
    ({ status = 200, body }) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    },
    () => {
      response.writeHead(500);
      response.end();
    },
  );
});
server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => console.log("listening"));
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    void page.close(); // ends live connections, which the server would wait for
    server.close(() => void stop());
  });
}
