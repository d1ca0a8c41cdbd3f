import { afterAll, describe, expect, it } from "vitest";
import { createRabbitmqPublisher, createRabbitmqSubscriber } from "../../../src/brokers/rabbitmq/index.ts";
import type { Channels } from "../../../src/core/events.ts";
import type { HandledMessage } from "../../../src/core/message.ts";
import { createInbox, createRelay, listen, PermanentError } from "../../../src/index.ts";
import { serverOrSkip, startRabbitmq, until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { inTransaction } from "../../support/in-transaction.ts";
import { testConnection } from "../../support/rabbitmq-connection.ts";
import { outboxDatabase } from "../support/outbox-database.ts";

const rabbitmq = await serverOrSkip("RabbitMQ", () => startRabbitmq());
afterAll(() => rabbitmq.stop());

const CHANNELS = [
  "txbox:outbox:enqueue:start",
  "txbox:outbox:enqueue:end",
  "txbox:relay:publish:start",
  "txbox:relay:publish:end",
  "txbox:subscriber:receive:start",
  "txbox:subscriber:receive:end",
  "txbox:inbox:handle:start",
  "txbox:inbox:handle:end",
  "txbox:relay:started",
  "txbox:relay:lanes",
  "txbox:relay:batch",
  "txbox:relay:paused",
  "txbox:relay:resumed",
  "txbox:relay:stopped",
  "txbox:subscriber:retry",
  "txbox:subscriber:dead",
] as const satisfies readonly (keyof Channels)[];

type Heard = { [Name in (typeof CHANNELS)[number]]: Channels[Name][] };

/** Copies, since an operation is told twice with one object. */
function hearAll(): { heard: Heard; order: string[]; end: () => void } {
  const heard = Object.fromEntries(CHANNELS.map((name) => [name, []])) as unknown as Heard;
  const order: string[] = [];
  const ends = CHANNELS.map((name) =>
    listen(name, (told) => {
      order.push(name);
      (heard[name] as object[]).push({ ...told });
    }),
  );
  return { heard, order, end: () => ends.forEach((end) => end()) };
}

describe.skipIf(!hasPostgres() || rabbitmq.skipped)("what is told on the way of a message through RabbitMQ", () => {
  it("every operation at its start and its end, and what became of relay and subscriber", async () => {
    await using database = await outboxDatabase();
    await using link = await testConnection(rabbitmq.server.url);
    const { connection } = link;
    const channel = await connection.createChannel();
    const queue = "events-of-a-message";
    await channel.assertExchange(queue, "topic");
    for (const name of [queue, `${queue}.dead`]) await channel.assertQueue(name);
    await channel.bindQueue(queue, queue, "#");
    const { store, outbox, pool } = database;
    const handled: HandledMessage[] = [];
    const inbox = createInbox({ store, consumer: "payments" });
    inbox.on("order_placed", async (tx, message) => {
      await outbox.enqueue(tx, { stream: queue, type: "payment_taken", payload: 1 });
      handled.push(message);
    });
    inbox.on("payment_taken", async (_, message) => {
      handled.push(message);
      if (handled.filter(({ type }) => type === "payment_taken").length === 1) throw new Error("not yet");
      throw new PermanentError("never");
    });
    const relay = createRelay({ store, name: "out", publisher: createRabbitmqPublisher({ connection }) });
    const { heard, order, end } = hearAll();
    try {
      await inbox.start(createRabbitmqSubscriber({ connection, queue, backoff: { baseMs: 1, maxMs: 2 } }));
      const message = { stream: queue, type: "order_placed", key: "o-1", payload: { n: 1 } };
      const placed = await inTransaction(pool, (tx) => outbox.enqueue(tx, message));
      await relay.start();
      await until(() => heard["txbox:subscriber:dead"].length > 0, { what: "a dead letter", timeoutMs: 60_000 });
      await until(() => heard["txbox:subscriber:receive:end"].length === 2, { what: "both received" });
      await store.admin.pause("out");
      await until(() => heard["txbox:relay:paused"].length > 0, { what: "the pause" });
      await store.admin.resume("out");
      await until(() => heard["txbox:relay:resumed"].length > 0, { what: "its end" });
      await relay.stop();
      await inbox.stop();

      const caused = handled[1]!;
      expect(caused.headers).toMatchObject({ causationId: placed.id, correlationId: placed.id });
      expect(caused.headers.causationPath).toEqual([["payments", "order_placed"]]);

      const timed = { ms: expect.any(Number) as number };
      expect(heard["txbox:outbox:enqueue:start"]).toEqual([
        { store: "postgres", headers: {} },
        { store: "postgres", headers: {} },
      ]);
      expect(heard["txbox:outbox:enqueue:end"][0]).toMatchObject({
        ...timed,
        messages: [{ id: placed.id, stream: queue, type: "order_placed", key: "o-1", duplicate: false }],
      });
      const publishes = heard["txbox:relay:publish:end"];
      expect(heard["txbox:relay:publish:start"]).toHaveLength(publishes.length);
      for (const told of publishes)
        expect(told).toMatchObject({ relay: "out", system: "rabbitmq", kind: "new", ...timed });
      expect(publishes.flatMap(({ messages }) => messages.map(({ id }) => id))).toEqual([placed.id, caused.id]);
      expect(publishes.flatMap(({ results }) => results ?? [])).toEqual([
        { status: "published" },
        { status: "published" },
      ]);
      for (const told of heard["txbox:subscriber:receive:end"])
        expect(told).toMatchObject({ consumer: "payments", system: "rabbitmq", result: "ended", ...timed });
      expect(heard["txbox:inbox:handle:end"].map(({ message: { id }, result }) => [id, result])).toEqual([
        [placed.id, "processed"],
        [caused.id, "failed"],
        [caused.id, "rejected"],
      ]);
      expect(heard["txbox:subscriber:retry"]).toMatchObject([{ consumer: "payments", id: caused.id, attempts: 1 }]);
      expect(heard["txbox:subscriber:dead"]).toMatchObject([{ consumer: "payments", id: caused.id, attempts: 2 }]);
      const batches = heard["txbox:relay:batch"];
      expect(batches.reduce((sum, { published }) => sum + published, 0)).toBe(2);
      expect(heard["txbox:relay:started"]).toMatchObject([{ relay: "out" }]);
      expect(heard["txbox:relay:lanes"].at(0)).toMatchObject({ relay: "out", lanes: 64 });
      expect(heard["txbox:relay:stopped"]).toMatchObject([{ relay: "out" }]);
      // A message is enqueued before it is published, received inside that, and handled inside of its receipt.
      const first = (name: (typeof CHANNELS)[number]): number => order.indexOf(name);
      const way = [
        "outbox:enqueue:end",
        "relay:publish:start",
        "subscriber:receive:start",
        "inbox:handle:start",
      ] as const;
      const indices = way.map((name) => first(`txbox:${name}`));
      expect(indices).toEqual(indices.toSorted((a, b) => a - b));
      expect(first("txbox:inbox:handle:end")).toBeLessThan(first("txbox:subscriber:receive:end"));
    } finally {
      end();
      await relay.stop();
      await inbox.stop();
    }
  });
});
