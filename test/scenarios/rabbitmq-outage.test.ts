import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it } from "vitest";
import { createRabbitmqPublisher, createRabbitmqSubscriber } from "../../src/brokers/rabbitmq/index.ts";
import { createInbox } from "../../src/inbox/inbox.ts";
import { createRelay } from "../../src/relay/relay.ts";
import { until } from "../harness/deadline.ts";
import { serverOrSkip } from "../harness/server-or-skip.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { startRabbitmq } from "../harness/start-rabbitmq.ts";
import { testConnection } from "../support/rabbitmq-connection.ts";
import { outboxDatabase, type OutboxDatabase } from "./support/outbox-database.ts";

const OUTAGE_MS = process.env["TXBOX_LONG"] === "1" ? 10_000 : 2000;
const KEYS = 200;
const EACH = 100;
const TOTAL = KEYS * EACH;

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

describe.skipIf(slot.skipped || !hasPostgres())(`RabbitMQ killed for ${OUTAGE_MS / 1000} s`, () => {
  it("loses, doubles and reorders nothing of 20,000 messages under way, and blames none", async () => {
    const { server } = slot;
    await using database = await outboxDatabase();
    await database.query("create table effect (id bigint generated always as identity, key text, n int)");
    await using sending = await testConnection(server.url);
    await using receiving = await testConnection(server.url);
    const events: string[] = [];
    const note = ({ type }: { type: string }): void => void events.push(type);

    const publisher = createRabbitmqPublisher({ connection: sending.connection });
    const relay = createRelay({
      store: database.store,
      name: "to-rabbitmq",
      publisher,
      maxAttempts: 2,
      maintenance: false,
      onEvent: note,
    });
    const inbox = createInbox({ store: database.store, consumer: "effects" });
    inbox.on("changed", async (tx, { payload }) => {
      const { key, n } = payload as { key: string; n: number };
      await tx.query("insert into effect (key, n) values ($1, $2)", [key, n]);
    });
    const subscriber = createRabbitmqSubscriber({
      connection: receiving.connection,
      queue: "effects",
      declare: { bind: { orders: "#" } },
      maxAttempts: 2,
      onEvent: note,
    });
    const effects = async (): Promise<number> => Number(await database.value("select count(*) from effect"));

    await inbox.start(subscriber);
    await server.saveQueueNames();
    await relay.start();
    try {
      await write(database, 1, 40);
      await until(async () => (await effects()) > TOTAL / 10, { what: "the flow", timeoutMs: 30_000 });
      // The relay is at it as well when the server dies.
      const writing = write(database, 41, 80);
      await until(() => relay.state().totals.published > TOTAL * 0.45, {
        what: "the second part",
        timeoutMs: 30_000,
        intervalMs: 1,
      });
      await server.kill();
      const published = relay.state().totals.published;
      expect(published).toBeLessThan(TOTAL * 0.8);
      expect(await effects()).toBeLessThan(published);
      await writing;
      await write(database, 81, EACH);
      await sleep(OUTAGE_MS);
      await server.restart();
      await until(async () => (await effects()) >= TOTAL, { what: "all effects", timeoutMs: 90_000, intervalMs: 100 });
      await until(async () => (await database.store.admin.relays())[0]?.pending === 0, { what: "settling" });
    } finally {
      await relay.stop();
      await inbox.stop();
      await publisher.close?.();
    }

    expect(events).toEqual(expect.arrayContaining(["outage", "recovered"]));
    expect(events.filter((type) => type === "retry" || type === "dead")).toEqual([]);
    expect(await effects()).toBe(TOTAL);
    const breaks = await database.query(
      "select key, n from (select key, n, lag(n, 1, 0) over (partition by key order by id) as before from effect) t where n <> before + 1",
    );
    expect(breaks).toEqual([]);
    const blamed = "select count(*)::int from txbox.receipt where attempts > 1 or status <> 'processed'";
    expect(await database.value(blamed)).toBe(0);
    expect(await database.value("select count(*)::int from txbox.dead")).toBe(0);
    const channel = await sending.connection.createChannel();
    expect((await channel.checkQueue("effects")).messageCount).toBe(0);
    expect((await channel.checkQueue("effects.dead")).messageCount).toBe(0);
  });
});

/** Each key counts up; the keys take turns. */
async function write(database: OutboxDatabase, from: number, to: number): Promise<void> {
  for (let n = from; n <= to; n++) {
    await database.enqueue(Array.from({ length: KEYS }, (_, key) => ({ key: `k${key}`, n })));
  }
}
