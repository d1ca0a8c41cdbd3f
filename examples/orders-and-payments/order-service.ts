import { createInbox, defineEvents } from "txbox";
import { createPostgresStore } from "txbox/postgres";
import { openPool } from "./database.ts";
import type { PaymentEvents } from "./events.ts";
import { createOrderServer } from "./order-server.ts";
import { onStop } from "./on-stop.ts";
import { openBroker } from "./open-broker.ts";
import { Orders, ORDERS_TABLE } from "./orders.ts";
import { setting } from "./settings.ts";
import { startInbox } from "./start-inbox.ts";

const pool = openPool(setting("DATABASE_URL"));
const store = createPostgresStore({ client: pool });
await store.migrator.migrate();
await pool.query(ORDERS_TABLE);
onStop(() => pool.end());

const orders = new Orders(pool, store);
const server = createOrderServer(orders);
server.listen(Number(setting("PORT")), "127.0.0.1", () => console.log(`ready: ${setting("PORT")}`));
onStop(() => server.close().closeAllConnections());

// Orders are taken from here on, whether the broker is there or not. It is needed to hear of payments.
const broker = await openBroker(setting("BROKER"), setting("BROKER_URL"));
onStop(() => broker.close());

const inbox = createInbox({ store, consumer: "orders", events: defineEvents<PaymentEvents>() });
inbox.on("payment_completed", (tx, message) => orders.paid(tx, message));
onStop(() => inbox.stop());
await startInbox(inbox, () => broker.subscriber({ stream: "payments", consumer: "orders" }));
console.log("subscribed");
