import { afterAll, describe, expect, it } from "vitest";
import type { ConsumeMessage } from "amqplib";
import { createRabbitmqPublisher, createRabbitmqSubscriber } from "../../../src/brokers/rabbitmq/index.ts";
import { audit, createInbox, createRelay } from "../../../src/index.ts";
import { until } from "../../harness/index.ts";
import { serverOrSkip } from "../../harness/server-or-skip.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { startRabbitmq } from "../../harness/start-rabbitmq.ts";
import { isLong } from "../../support/is-long.ts";
import { testConnection, type TestConnection } from "../../support/rabbitmq-connection.ts";
import { projectFolder, runCli, type CliResult } from "../../support/run-cli.ts";
import { outboxDatabase, type Numbered, type OutboxDatabase } from "../support/outbox-database.ts";

const COUNT = isLong ? 100_000 : 5000;
const KEYS = 200;
const DELETED = 10;
const QUEUE = "payments";

const slot = await serverOrSkip("RabbitMQ", () => startRabbitmq({ owned: true }));
afterAll(() => slot.stop());

const RABBITMQ_URL = new URL("../../../src/brokers/rabbitmq/index.ts", import.meta.url).href;

/** As `orders` has it: its database, its relay, and where `payments` is. */
const configOf = (orders: string, payments: string, broker: string): string => `
  import { createRequire } from "node:module";
  import { createRabbitmqPublisher } from ${JSON.stringify(RABBITMQ_URL)};
  const { connect } = createRequire(${JSON.stringify(import.meta.url)})("amqplib");
  let connection;
  export default {
    database: { url: ${JSON.stringify(orders)} },
    stores: { payments: { url: ${JSON.stringify(payments)} } },
    relays: { "to-rabbit": { publisher: async () => {
      connection = await connect(${JSON.stringify(broker)}, { recovery: { maxDelay: 1000, initialMaxRetries: 5 } });
      return createRabbitmqPublisher({ connection });
    } } },
    close: () => connection?.close(),
  };`;

/** Takes these from the queue for good, as a person would with the management page; all others stay where they are. */
async function deleteByHand({ connection }: TestConnection, lost: ReadonlySet<string>): Promise<void> {
  const channel = await connection.createChannel();
  const seen: ConsumeMessage[] = [];
  await channel.consume(QUEUE, (message) => message !== null && seen.push(message));
  await until(() => seen.length === COUNT, { what: "all messages in the queue", timeoutMs: 120_000 });
  for (const message of seen) if (lost.has(String(message.properties.messageId))) channel.ack(message);
  await channel.close();
}

interface Effect extends Record<string, unknown> {
  id: string;
  key: string;
  n: number;
  seq: number;
  replay: string | null;
}

async function handling(payments: OutboxDatabase, { connection }: TestConnection) {
  const inbox = createInbox({ store: payments.store, consumer: "payments" });
  inbox.on("order_placed", async (tx, message) => {
    const { key, n } = message.payload as Numbered;
    await tx.query("insert into effect (id, key, n, replay) values ($1, $2, $3, $4)", [
      message.id,
      key,
      n,
      message.headers["replayOf"] ?? null,
    ]);
  });
  // A classic queue gives one consumer all it has, and puts back what it had not acknowledged in its old order.
  const declare = { bind: { orders: "#" }, queueType: "classic" } as const;
  await inbox.start(createRabbitmqSubscriber({ connection, queue: QUEUE, declare }));
  return inbox;
}

describe.skipIf(slot.skipped || !hasPostgres())(`${DELETED} of ${COUNT} messages deleted from a queue by hand`, () => {
  it(
    "are found by an audit and sent again, each takes effect once, and keys stay in order",
    { timeout: 900_000 },
    async () => {
      await using orders = await outboxDatabase();
      await using payments = await outboxDatabase();
      await payments.pool.query(
        "create table effect (seq bigint generated always as identity, id text primary key, key text, n int, replay text)",
      );
      await using sending = await testConnection(slot.server.url);
      await using receiving = await testConnection(slot.server.url);
      using project = projectFolder({ "txbox.config.mjs": configOf(orders.url, payments.url, slot.server.url) });
      const cli = (...args: string[]): Promise<CliResult> =>
        runCli(["audit", "--to", "payments", "--consumer", "payments", "--types", "order_placed", "--json", ...args], {
          cwd: project.path,
          timeoutMs: 300_000,
        });

      // The queue is there before the first message, and has no reader.
      await (await handling(payments, receiving)).stop();
      for (let from = 0; from < COUNT; from += 5000) {
        const client = await orders.pool.connect();
        await client.query("begin");
        for (let part = from; part < Math.min(COUNT, from + 5000); part += 1000) {
          await orders.outbox.enqueue(
            client,
            Array.from({ length: Math.min(1000, COUNT - part) }, (_, i) => {
              const n = part + i;
              return {
                stream: "orders",
                type: "order_placed",
                key: `k${n % KEYS}`,
                payload: { key: `k${n % KEYS}`, n },
              };
            }),
          );
        }
        await client.query("commit");
        client.release();
      }
      const relay = createRelay({
        store: orders.store,
        name: "to-rabbit",
        publisher: createRabbitmqPublisher({ connection: sending.connection }),
        start: "earliest",
      });
      expect(await relay.drainOnce({ deadlineMs: 300_000 })).toMatchObject({ published: COUNT, dead: 0 });

      // Two of one key among them: they must come in order.
      const places = [0, 1, 2, 3, 4, 5, 6, 7]
        .map((n) => Math.floor((n * COUNT) / 8) + n * 7)
        .concat([KEYS * 3 + 50, KEYS * 5 + 50]);
      const rows = await orders.query<{ id: string; n: number }>(
        "select id, (payload ->> 'n')::int as n from txbox.message where (payload ->> 'n')::int = any ($1) order by position",
        [places],
      );
      const lost = rows.map(({ id }) => id);
      expect(new Set(lost).size).toBe(DELETED);
      await deleteByHand(receiving, new Set(lost));

      const effects = (): Promise<Effect[]> => payments.query<Effect>("select * from effect order by seq");
      const handled = (count: number): Promise<unknown> =>
        until(async () => Number(await payments.value("select count(*)::int from effect")) >= count, {
          what: `${count} effects`,
          timeoutMs: 600_000,
        });
      let inbox = await handling(payments, receiving);
      await handled(COUNT - DELETED);
      await inbox.stop();

      // Too young to be missed, then found.
      const young = await cli("--grace", "1h");
      expect(young.json).toMatchObject({ missing: 0, underway: DELETED, arrived: COUNT - DELETED, clean: true });
      expect(young.code).toBe(0);
      const begun = performance.now();
      const found = await cli("--grace", "0s");
      if (isLong)
        process.stdout.write(`audit of ${COUNT}: ${Math.round(performance.now() - begun)} ms with its process\n`);
      expect(found.code).toBe(6);
      expect(found.json).toMatchObject({
        checked: COUNT,
        arrived: COUNT - DELETED,
        missing: DELETED,
        failed: 0,
        late: 0,
      });
      const { findings } = found.json as { findings: { id: string; outcome: string }[] };
      expect(findings.map(({ id, outcome }) => ({ id, outcome }))).toEqual(
        lost.map((id) => ({ id, outcome: "missing" })),
      );

      // Twice before the consumer had a chance, and by two at once: the receipts drop what is too much.
      const again = await Promise.all([
        cli("--grace", "0s", "--requeue", "--yes"),
        cli("--grace", "0s", "--requeue", "--yes"),
      ]);
      for (const { code, json, stderr } of again) {
        expect(code, stderr).toBe(6);
        expect(json).toMatchObject({ missing: DELETED, requeued: { sent: DELETED, failed: 0, error: null } });
      }
      const channel = await receiving.connection.createChannel();
      expect((await channel.checkQueue(QUEUE)).messageCount).toBe(2 * DELETED);
      inbox = await handling(payments, receiving);
      await handled(COUNT);
      await until(async () => (await channel.checkQueue(QUEUE)).messageCount === 0, {
        what: "an empty queue",
        timeoutMs: 60_000,
      });
      await inbox.stop();

      const all = await effects();
      expect(all).toHaveLength(COUNT);
      expect(new Set(all.map(({ n }) => n)).size).toBe(COUNT);
      expect(
        all
          .filter(({ replay }) => replay !== null)
          .map(({ id }) => id)
          .sort(),
      ).toEqual(lost.toSorted());
      const disorder = (those: readonly Effect[]): Effect[] => {
        const last = new Map<string, number>();
        return those.filter(({ key, n }) => {
          const before = last.get(key) ?? -1;
          last.set(key, n);
          return n < before;
        });
      };
      // First deliveries in order; those sent again come late, in order among themselves.
      expect(disorder(all.filter(({ id }) => !lost.includes(id)))).toEqual([]);
      expect(disorder(all.filter(({ id }) => lost.includes(id)))).toEqual([]);

      const after = await cli("--grace", "0s", "--requeue", "--yes");
      expect(after.json).toMatchObject({
        checked: COUNT,
        arrived: COUNT,
        missing: 0,
        clean: true,
        requeued: { sent: 0 },
      });
      expect(after.code).toBe(0);
      const other = await audit({
        from: orders.store,
        to: payments.store,
        consumer: "payments",
        since: new Date(Date.now() - 3_600_000),
        graceMs: 0,
      });
      expect(other).toMatchObject({ clean: true, arrived: COUNT });
    },
  );
});
