import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createKafkaPublisher, createKafkaSubscriber, type SubscriberEvent } from "../../src/brokers/kafka/index.ts";
import { createInbox } from "../../src/inbox/inbox.ts";
import { createRelay } from "../../src/relay/relay.ts";
import type { RelayEvent } from "../../src/relay/relay-events.ts";
import { until } from "../harness/deadline.ts";
import { serverOrSkip, type ServerSlot } from "../harness/server-or-skip.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startKafka, type KafkaServer } from "../harness/start-kafka.ts";
import { createTopic, openConsumer, openProducer } from "../support/kafka/kafka-clients.ts";
import { type Numbered, outboxDatabase, type OutboxDatabase } from "./support/outbox-database.ts";

const OUTAGE_MS = process.env["TXBOX_LONG"] === "1" ? 10_000 : 2000;
const KEYS = 200;
const ROUNDS = 100;
const MESSAGES = KEYS * ROUNDS;

describe.skipIf(!hasPostgres())(`Kafka killed for ${OUTAGE_MS / 1000} s while ${MESSAGES} messages flow`, () => {
  let slot: ServerSlot<KafkaServer>;
  let database: OutboxDatabase;
  const clients: { close(): Promise<unknown> }[] = [];

  beforeAll(async () => {
    slot = await serverOrSkip("Kafka", () => startKafka({ owned: true }));
    database = await outboxDatabase();
    await database.query("create table effects (at bigserial primary key, key text not null, n int not null)");
  });
  afterAll(async () => {
    await Promise.all(clients.map((client) => client.close()));
    await slot.stop();
    await database[Symbol.asyncDispose]();
  });

  it("loses nothing, keeps the order of every key and counts no attempts", async ({ skip }) => {
    if (slot.skipped) skip(slot.reason);
    const { brokers } = slot.server;
    await createTopic(brokers, "orders", 6);
    await createTopic(brokers, "orders.dead", 1);
    const [consumer, producer] = [openConsumer(brokers, "effects"), openProducer(brokers)];
    clients.push(consumer, producer);
    const relayEvents: RelayEvent[] = [];
    const events: SubscriberEvent[] = [];
    const relay = createRelay({
      store: database.store,
      name: "to-kafka",
      publisher: createKafkaPublisher({ producer: openProducer(brokers) }),
      batchSize: 500,
      maintenance: false,
      onEvent: (event) => void relayEvents.push(event),
    });
    const inbox = createInbox({ store: database.store, consumer: "effects" });
    inbox.on("changed", async (tx, { payload }) => {
      const { key, n } = payload as Numbered;
      await tx.query("insert into effects (key, n) values ($1, $2)", [key, n]);
    });
    await inbox.start(
      createKafkaSubscriber({
        consumer,
        producer,
        topics: ["orders"],
        onEvent: (event) => void events.push(event),
      }),
    );
    await relay.start();
    await write(database, 1, ROUNDS / 2);
    const effects = async (): Promise<number> => Number(await database.value("select count(*) from effects"));
    await until(async () => (await effects()) > MESSAGES / 5, { what: "the first effects", timeoutMs: 60_000 });

    // The relay is at it as well when the server dies.
    const writing = write(database, ROUNDS / 2 + 1, ROUNDS);
    await until(() => relay.state().totals.published > MESSAGES * 0.6, {
      what: "the second half",
      timeoutMs: 30_000,
      intervalMs: 1,
    });
    await slot.server.kill();
    const before = await effects();
    await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS));
    await slot.server.restart();
    await writing;
    await until(async () => (await effects()) >= MESSAGES, { what: "all effects", timeoutMs: 90_000, intervalMs: 100 });
    await relay.stop();
    await inbox.stop();

    expect(before).toBeLessThan(MESSAGES);
    expect(await effects()).toBe(MESSAGES);
    expect(await database.value("select count(distinct (key, n)) from effects")).toBe(String(MESSAGES));
    expect(await database.value(ORDER_BREAKS)).toBe("0");
    expect(relayEvents.filter(({ type }) => type === "retry" || type === "dead")).toEqual([]);
    expect(events.filter(({ type }) => type === "retry" || type === "dead")).toEqual([]);
    expect(relayEvents.some(({ type }) => type === "outage")).toBe(true);
    expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(["outage", "recovered"]));
    expect(await database.value("select count(*) from txbox.dead")).toBe("0");
    const infos = await database.store.admin.find({ stream: "orders", limit: MESSAGES });
    expect(infos.filter(({ attempts, status }) => attempts !== 1 || status !== "published")).toEqual([]);
  });
});

/** Effects that came before an earlier one of their key. */
const ORDER_BREAKS = `select count(*) from (
  select n, lag(n) over (partition by key order by at) as before from effects
) as steps where before is not null and n <> before + 1`;

/** Each key counts up; the keys take turns. */
async function write(database: OutboxDatabase, from: number, to: number): Promise<void> {
  for (let n = from; n <= to; n++) {
    await database.enqueue(Array.from({ length: KEYS }, (_, key) => ({ key: `k${key}`, n })));
  }
}
