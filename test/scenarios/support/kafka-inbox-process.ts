import { createKafkaSubscriber } from "../../../src/brokers/kafka/index.ts";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";
import { type Numbered, openPool } from "./outbox-database.ts";

// A consumer of "orders" that notes each effect with its own name; a line of output for every hundred.
const [brokers = "", url = "", name = ""] = process.argv.slice(2);
const pool = openPool(url);
const consumer = openConsumer(brokers.split(","), "effects");
const producer = openProducer(brokers.split(","));
let handled = 0;
const inbox = createInbox({ store: createPostgresStore({ client: pool }), consumer: "effects" });
inbox.on("changed", async (tx, { payload }) => {
  const { key, n } = payload as Numbered;
  await tx.query("insert into effects (key, n, by) values ($1, $2, $3)", [key, n, name]);
  if (++handled % 100 === 0) process.stdout.write(`${handled}\n`);
});
await inbox.start(
  createKafkaSubscriber({
    consumer,
    producer,
    topics: ["orders"],
    sessionTimeoutMs: 2000,
    onEvent: (event) => process.stderr.write(`${JSON.stringify(event)}\n`),
  }),
);
process.stdout.write("started\n");

async function stop(): Promise<void> {
  await inbox.stop();
  await Promise.all([consumer.close(), producer.close(), pool.end()]);
}
process.once("SIGTERM", () => void stop());
