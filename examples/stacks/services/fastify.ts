import fastify from "fastify";
import type pg from "pg";
import { logEvents, PermanentError, type Outbox } from "txbox";
import { toNodeHandler } from "txbox/admin";
import { txboxFastify, type TxboxFastify } from "txbox/fastify";
import { createInProcessBus } from "txbox/in-process";
import { inTransaction, payments, pool, prepare, store, type Events, type Order } from "./database.ts";
import { page } from "./page.ts";

declare module "fastify" {
  interface FastifyInstance {
    outbox: Outbox<Events, pg.ClientBase>;
    txbox: TxboxFastify<Events>;
  }
}

await prepare();
const app = fastify({ logger: true });
logEvents({ logger: app.log });
app.addHook("onClose", () => pool.end()); // registered before txbox, so it runs after it

const bus = createInProcessBus();
await app.register(txboxFastify, {
  store,
  relays: [{ name: "payments", publisher: bus }],
  inboxes: [
    {
      consumer: "payments",
      subscriber: bus,
      handlers: {
        order_created: async (tx: pg.ClientBase, { payload }: { payload: Order }) => {
          if (payload.total < 0) throw new PermanentError("a total below zero");
          await tx.query("insert into payments values ($1, $2)", [payload.orderId, payload.total]);
        },
      },
    },
  ],
});

const showPage = toNodeHandler(page);
await app.register(async (own) => {
  // In a plugin of its own, so that no parser of the application takes its bodies.
  own.removeAllContentTypeParsers();
  own.addContentTypeParser("*", (_request, _body, done) => done(null));
  for (const path of ["/txbox", "/txbox/*"]) {
    own.all(path, async (request, reply) => {
      reply.hijack();
      await showPage(request.raw, reply.raw);
    });
  }
  own.addHook("preClose", () => page.close()); // ends live connections, which the server would wait for
});

app.post<{ Body: Order }>("/orders", async ({ body: { orderId, total } }) => {
  await inTransaction(async (tx) => {
    await tx.query("insert into orders values ($1, $2)", [orderId, total]);
    const message = { stream: "orders", type: "order_created" as const, key: orderId, payload: { orderId, total } };
    await app.outbox.enqueue(tx, message);
  });
  return { orderId };
});
app.get("/payments", () => payments());
app.get("/readyz", async (_, reply) => {
  const report = await app.txbox.health.ready();
  return reply.code(report.ok ? 200 : 503).send(report);
});

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void app.close());
await app.listen({ port: Number(process.env.PORT ?? 3000), host: "127.0.0.1" });
