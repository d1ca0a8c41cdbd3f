import { Redis } from "ioredis";
import { createRedisPublisher, createRedisSubscriber } from "../../src/brokers/redis/index.ts";
import { createInbox } from "../../src/inbox/inbox.ts";
import { defineEvents } from "../../src/index.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createRelay } from "../../src/relay/relay.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { openPool } from "../scenarios/support/outbox-database.ts";

/** A service of a shop in a process of its own, as it would be deployed. */
export interface ShopService {
  readonly role: "relay" | "payments";
  /** Its own database. */
  readonly database: string;
  readonly redis: string;
  /** A bad release reads a field that orders do not have. */
  readonly release?: "good" | "bad";
}

interface Order {
  orderId: string;
  customer: string;
  total: number;
  account?: { iban: string };
}

const { role, database, redis, release = "good" } = JSON.parse(process.argv[2] ?? "{}") as ShopService;
const pool = openPool(database);
const store = createPostgresStore({ client: pool });
const client = new Redis(redis, { lazyConnect: true });
const common = { store, leaseMs: 2000, maintenance: false, backoff: { baseMs: 50, maxMs: 500 } } as const;
const stopping: (() => Promise<unknown>)[] = [];

if (role === "relay") {
  const relay = createRelay({
    ...common,
    name: "to-redis",
    publisher: createRedisPublisher({ client }),
    batchSize: 20,
  });
  await relay.start();
  stopping.push(() => relay.stop());
} else {
  const outbox = createOutbox({ store });
  const inbox = createInbox({
    store,
    consumer: "payments",
    mode: "stored",
    events: defineEvents<{ order_placed: Order }>(),
  });
  inbox.on("order_placed", async (tx, { payload: { orderId, customer, total, account } }) => {
    const iban = release === "bad" ? account!.iban : "of the customer";
    if (total <= 0) throw new Error(`the total of an order must be above 0, got ${total}`);
    await tx.query("insert into payment (order_id, customer, total, iban) values ($1, $2, $3, $4)", [
      orderId,
      customer,
      total,
      iban,
    ]);
    const about = { aggregateType: "payment", aggregateId: orderId };
    await outbox.enqueue(tx, {
      stream: "payments",
      type: "payment_made",
      key: customer,
      payload: { orderId },
      ...about,
    });
  });
  const local = createRelay({
    ...common,
    name: "payments-inbox",
    streams: ["inbox.payments"],
    publisher: inbox.storedPublisher({ concurrency: 5 }),
    maxAttempts: 2,
    onDead: "block",
  });
  const onward = createRelay({ ...common, name: "to-mails", publisher: createRedisPublisher({ client }) });
  await inbox.start(
    createRedisSubscriber({ client, streams: "orders", group: "payments", declare: true, takeOverAfterMs: 3000 }),
  );
  await local.start();
  await onward.start();
  stopping.push(
    () => inbox.stop(),
    () => local.stop(),
    () => onward.stop(),
  );
}
process.once("SIGTERM", () => {
  void Promise.all(stopping.map((stop) => stop())).then(() => process.exit(0));
});
process.stdout.write(`ready ${release}\n`);
