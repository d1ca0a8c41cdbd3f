import { createHealth, createInbox, createOutbox, createRelay, logEvents, PermanentError } from "txbox";
import { createInProcessBus } from "txbox/in-process";
import { inTransaction, pool, prepare, store, type Events, type Order } from "./database.ts";

logEvents({ logger: console });

const outbox = createOutbox<Events>({ store });
const bus = createInProcessBus();
const inbox = createInbox<Events>({ store, consumer: "payments" });
inbox.on("order_created", async (tx, { payload }) => {
  if (payload.total < 0) throw new PermanentError("a total below zero");
  await tx.query("insert into payments values ($1, $2)", [payload.orderId, payload.total]);
});
const relay = createRelay({ store, name: "payments", publisher: bus });

export const health = createHealth({ store, relays: [relay] });

export async function placeOrder({ orderId, total }: Order): Promise<void> {
  await inTransaction(async (tx) => {
    await tx.query("insert into orders values ($1, $2)", [orderId, total]);
    await outbox.enqueue(tx, { stream: "orders", type: "order_created", key: orderId, payload: { orderId, total } });
  });
}

export async function start(): Promise<void> {
  await prepare();
  await inbox.start(bus);
  await relay.start();
}

/** The relay first, so that what it has in hand is handled; the pool last. */
export async function stop(): Promise<void> {
  await relay.stop();
  await inbox.stop();
  await pool.end();
}
