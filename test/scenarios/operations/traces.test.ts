import { SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { createInProcessBus } from "../../../src/brokers/in-process/index.ts";
import { createKafkaPublisher, createKafkaSubscriber } from "../../../src/brokers/kafka/index.ts";
import { createRabbitmqPublisher, createRabbitmqSubscriber } from "../../../src/brokers/rabbitmq/index.ts";
import type { Publisher, Subscriber } from "../../../src/core/contracts.ts";
import type { HandledMessage, NewMessage } from "../../../src/core/message.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { createInbox, type InboxOptions } from "../../../src/inbox/inbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { serverOrSkip, startKafka, startRabbitmq, until } from "../../harness/index.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { inTransaction } from "../../support/in-transaction.ts";
import { createTopic, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";
import { testConnection } from "../../support/rabbitmq-connection.ts";
import { isChild, startTracing, type Tracing } from "../../support/tracing.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

const rabbitmq = await serverOrSkip("RabbitMQ", () => startRabbitmq());
const kafka = await serverOrSkip("Kafka", () => startKafka());
afterAll(async () => {
  await rabbitmq.stop();
  await kafka.stop();
});

type Handler = (tx: object, message: HandledMessage) => Promise<void>;
type Mode = NonNullable<InboxOptions<Record<string, unknown>, object>["mode"]>;

let database: OutboxDatabase;
let tracing: Tracing;
const cleanups: (() => unknown)[] = [];

beforeEach(async () => {
  database = await outboxDatabase();
  tracing = startTracing();
});
afterEach(async () => {
  for (const clean of cleanups.splice(0).toReversed()) await clean();
  tracing[Symbol.dispose]();
  await database[Symbol.asyncDispose]();
});

/** The handlers behind a broker. */
async function connect({ subscriber }: { subscriber: Subscriber }, handler: Handler, mode: Mode = "inline") {
  const { store } = database;
  const inbox = createInbox({ store, consumer: "payments", mode });
  inbox.on("order_placed", handler);
  inbox.on("payment_taken", async () => undefined);
  await inbox.start(subscriber);
  cleanups.push(() => inbox.stop());
  return inbox;
}

async function run(publisher: Publisher, name: string, streams: string[]): Promise<void> {
  const relay = createRelay({
    store: database.store,
    name,
    publisher,
    streams,
    start: "earliest",
    backoff: { baseMs: 10, maxMs: 20 },
  });
  await relay.start();
  cleanups.push(() => relay.stop());
}

async function enqueue(messages: readonly NewMessage[]): Promise<void> {
  await tracing.inSpan("POST /orders", () =>
    inTransaction(database.pool, async (tx) => void (await database.outbox.enqueue(tx, messages))),
  );
}

const placed = (stream: string, n: number): NewMessage => ({
  stream,
  type: "order_placed",
  key: `o-${n}`,
  payload: { card: "4111-1111" },
});

async function ended(name: string, count = 1): Promise<ReadableSpan[]> {
  const found = () => tracing.spans().filter((span) => span.name === name);
  await until(() => found().length >= count, { what: `${count} spans ${name}`, timeoutMs: 60_000 });
  return found();
}

const isBatch = ({ attributes }: ReadableSpan): boolean => "messaging.batch.message_count" in attributes;
const idOf = (span: ReadableSpan): string => String(span.attributes["messaging.message.id"]);
const traceOf = (span: ReadableSpan): string => span.spanContext().traceId;

/** From a request through the broker to the handlers, and what those enqueue. */
async function proveOneTrace(system: string, ends: { publisher: Publisher; subscriber: Subscriber }, stream: string) {
  const events: { traceId: string | undefined }[] = [];
  await connect(ends, async (tx, { id }) => {
    await tracing.inSpan("query", async () => undefined);
    events.push({ traceId: trace.getActiveSpan()?.spanContext().traceId });
    await database.outbox.enqueue(tx, { stream, type: "payment_taken", payload: { for: id } });
  });
  await enqueue([1, 2, 3].map((n) => placed(stream, n)));
  await run(ends.publisher, "out", [stream]);
  const receives = await ended(`receive ${stream}`, 6);
  await until(() => tracing.spans().filter((span) => span.attributes["txbox.result"] === "published").length === 6, {
    what: "the end of publishing",
  });

  const request = tracing.span("POST /orders");
  const [first] = await ended(`enqueue ${stream}`, 4);
  expect(isChild(first!, request)).toBe(true);
  expect(first?.kind).toBe(SpanKind.PRODUCER);
  expect(first?.attributes).toMatchObject({ "messaging.batch.message_count": 3, "txbox.store": "postgres" });

  const ids = receives.filter((span) => isChild(span, first!)).map(idOf);
  expect(ids).toHaveLength(3);
  expect(new Set(receives.map(traceOf))).toEqual(new Set([traceOf(request)]));
  for (const receive of receives) {
    expect(receive.kind).toBe(SpanKind.CONSUMER);
    expect(receive.attributes).toMatchObject({
      "messaging.system": system,
      "messaging.operation.name": "receive",
      "messaging.operation.type": "receive",
      "messaging.destination.name": stream,
      "messaging.consumer.group.name": "payments",
      "txbox.result": "ended",
    });
    const [handle] = tracing.spans().filter((span) => isChild(span, receive));
    expect(handle?.name).toBe(`handle ${stream}`);
    expect(handle?.attributes).toMatchObject({ "messaging.system": system, "txbox.result": "processed" });
  }

  // What the handler did lies beneath it: its queries, and what it enqueued with all that came of that.
  const handles = tracing.spans().filter((span) => span.name === `handle ${stream}` && ids.includes(idOf(span)));
  expect(handles).toHaveLength(3);
  expect(events.map(({ traceId }) => traceId)).toEqual(handles.map(traceOf));
  for (const handle of handles) {
    const beneath = tracing.spans().filter((span) => isChild(span, handle));
    expect(beneath.map(({ name }) => name).sort()).toEqual([`enqueue ${stream}`, "query"]);
    const caused = beneath.find(({ name }) => name.startsWith("enqueue"))!;
    const after = tracing.spans().filter((span) => isChild(span, caused));
    expect(after.map(({ name }) => name).sort()).toEqual([`publish ${stream}`, `receive ${stream}`]);
  }

  const publishes = () => tracing.spans().filter((span) => span.name === `publish ${stream}`);
  const singles = publishes().filter((span) => !isBatch(span));
  expect(singles).toHaveLength(6);
  const batches = publishes().filter(isBatch);
  expect(
    singles
      .filter((span) => isChild(span, first!))
      .map(idOf)
      .sort(),
  ).toEqual(ids.sort());
  for (const span of singles) {
    expect(span.kind).toBe(SpanKind.CLIENT);
    expect(span.attributes).toMatchObject({
      "messaging.system": system,
      "messaging.operation.name": "publish",
      "messaging.operation.type": "send",
      "messaging.destination.name": stream,
      "txbox.relay": "out",
      "txbox.result": "published",
    });
  }
  // Batches are linked to the enqueues of their messages, each message once.
  for (const batch of batches) expect(batch.parentSpanContext).toBeUndefined();
  const linked = batches.flatMap(({ links }) =>
    links.map(({ attributes }) => String(attributes?.["messaging.message.id"])),
  );
  expect(linked.sort()).toEqual(singles.map(idOf).sort());
  expect(batches.reduce((sum, { attributes }) => sum + Number(attributes["messaging.batch.message_count"]), 0)).toBe(6);

  const told = JSON.stringify(tracing.spans().map(({ attributes, events: told, links }) => [attributes, told, links]));
  expect(told).not.toContain("4111-1111");
}

describe.skipIf(!hasPostgres() || rabbitmq.skipped)("one trace through RabbitMQ", () => {
  it("from a request to the handlers, and to what they enqueue", async () => {
    const link = await testConnection(rabbitmq.server.url);
    cleanups.push(() => link[Symbol.asyncDispose]());
    const { connection } = link;
    const name = `traces-${uuidv7()}`;
    const channel = await connection.createChannel();
    await channel.assertExchange(name, "topic");
    for (const queue of [name, `${name}.dead`]) await channel.assertQueue(queue);
    await channel.bindQueue(name, name, "#");
    const publisher = createRabbitmqPublisher({ connection });
    const subscriber = createRabbitmqSubscriber({ connection, queue: name });
    await proveOneTrace("rabbitmq", { publisher, subscriber }, name);
  });
});

describe.skipIf(!hasPostgres() || kafka.skipped)("one trace through Kafka", () => {
  it("from a request to the handlers, and to what they enqueue", async () => {
    const { brokers } = kafka.server;
    const topic = `traces-${uuidv7()}`;
    await createTopic(brokers, topic);
    await createTopic(brokers, `${topic}.dead`, 1);
    const [producer, consumer] = [openProducer(brokers), openConsumer(brokers, `g-${topic}`)];
    cleanups.push(
      () => producer.close(),
      () => consumer.close(),
    );
    const publisher = createKafkaPublisher({ producer });
    const subscriber = createKafkaSubscriber({ consumer, producer, topics: [topic] });
    await proveOneTrace("kafka", { publisher, subscriber }, topic);
  });
});

describe.skipIf(!hasPostgres())("one trace in one process", () => {
  const busEnds = () => {
    const bus = createInProcessBus();
    return { publisher: bus, subscriber: bus };
  };

  it("over the bus: a handler that fails is shown with its error, and tried again in the same trace", async () => {
    let attempts = 0;
    const ends = busEnds();
    await connect(ends, async () => {
      if (++attempts === 1) throw Object.assign(new Error("declined by https://u:pw-9@bank"), { code: "DECLINED" });
    });
    await enqueue([placed("orders", 1)]);
    await run(ends.publisher, "out", ["orders"]);
    const [failing, done] = await ended("handle orders", 2);
    const enqueued = tracing.span("enqueue orders");
    for (const span of [failing!, done!]) {
      expect(isChild(span, enqueued)).toBe(true);
      expect(span.kind).toBe(SpanKind.CONSUMER);
      expect(span.attributes).toMatchObject({ "messaging.system": "txbox", "messaging.operation.type": "process" });
    }
    expect(failing?.status.code).toBe(SpanStatusCode.ERROR);
    expect(failing?.attributes).toMatchObject({ "error.type": "DECLINED", "txbox.result": "failed" });
    expect(failing?.events.map(({ name }) => name)).toEqual(["exception"]);
    expect(JSON.stringify([failing?.events, failing?.status])).not.toContain("pw-9");
    expect(done?.status.code).toBe(SpanStatusCode.UNSET);
    const publishes = await until(
      () => {
        const found = tracing.spans().filter((span) => isChild(span, enqueued) && span.name === "publish orders");
        return found.length === 2 && found;
      },
      { what: "both attempts" },
    );
    // A handler that takes long goes on when its batch is through.
    const results = publishes.map(({ attributes }) => attributes["txbox.result"]);
    expect(results).toEqual([expect.stringMatching(/failed|running/), expect.stringMatching(/published|running/)]);
  });

  it("in mode stored: what was received is handled later, in the trace of the message", async () => {
    const ends = busEnds();
    const inbox = await connect(ends, async () => tracing.inSpan("query", async () => undefined), "stored");
    await enqueue([placed("orders", 1)]);
    await run(ends.publisher, "out", ["orders"]);
    await run(inbox.storedPublisher(), "stored", ["inbox.payments"]);
    await ended("query");
    const [handled] = await ended("handle inbox.payments");
    const enqueued = tracing.span("enqueue orders");
    expect(isChild(handled!, enqueued)).toBe(true);
    expect(handled?.attributes).toMatchObject({ "txbox.how": "stored", "txbox.result": "processed" });
    expect(isChild(tracing.span("handle orders"), enqueued)).toBe(true);
    expect(tracing.span("handle orders").attributes).toMatchObject({ "txbox.how": "store", "txbox.result": "stored" });
    expect(isChild(tracing.span("query"), handled!)).toBe(true);
  });
});
