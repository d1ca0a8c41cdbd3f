import { randomUUID } from "node:crypto";
import { createInbox, createOutbox } from "txbox";
import { createPostgresStore } from "txbox/postgres";
import { openPool } from "./database.ts";
import type { OrderEvents, PaymentEvents } from "./events.ts";
import { onStop } from "./on-stop.ts";
import { openBroker } from "./open-broker.ts";
import { setting } from "./settings.ts";
import { startInbox } from "./start-inbox.ts";

const pool = openPool(setting("DATABASE_URL"));
const store = createPostgresStore({ client: pool });
await store.migrator.migrate();
// Nothing here keeps a second payment of an order out: that is the inbox's work, and the example is to show it.
await pool.query(`create table if not exists payments (
  number bigint generated always as identity,
  payment_id text primary key,
  order_id text not null,
  customer_id text not null,
  amount int not null
)`);
onStop(() => pool.end());

const outbox = createOutbox<PaymentEvents>({ store });
const inbox = createInbox<OrderEvents>({ store, consumer: "payments" });

// Receive, change and send are one transaction: receipt, payment and message are all there, or none of them.
inbox.on("order_created", async (tx, { payload, key }) => {
  const { order_id, customer_id, total_amount: amount } = payload;
  const payment_id = randomUUID();
  await tx.query("insert into payments (payment_id, order_id, customer_id, amount) values ($1, $2, $3, $4)", [
    payment_id,
    order_id,
    customer_id,
    amount,
  ]);
  await outbox.enqueue(tx, {
    stream: "payments",
    type: "payment_completed",
    key: key ?? order_id,
    aggregateType: "payment",
    aggregateId: payment_id,
    payload: { order_id, payment_id, amount },
  });
});

const broker = await openBroker(setting("BROKER"), setting("BROKER_URL"));
onStop(() => broker.close());
onStop(() => inbox.stop());
await startInbox(inbox, () => broker.subscriber({ stream: "orders", consumer: "payments" }));
console.log("subscribed");
