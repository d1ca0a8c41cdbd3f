import { readdirSync, statSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { createKafkaPipeline, createKafkaSubscriber, type SubscriberEvent } from "../../../src/brokers/kafka/index.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { serverOrSkip, startKafka, until } from "../../harness/index.ts";
import { ForeignProducer, offsetOf, setOffset } from "../../support/kafka/foreign-client.ts";
import { createTopic, deleteTopic, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";

const slot = await serverOrSkip("Kafka", () => startKafka({ owned: true }));
afterAll(() => slot.stop());

/** Reads a topic as the group of its name; what it has handled is in `got`. */
interface Reading {
  stop(): Promise<void>;
}

interface World {
  readonly topic: string;
  readonly got: string[];
  readonly events: SubscriberEvent[];
  read(): Promise<Reading>;
}

type Kind = "subscriber" | "pipeline";

async function world(kind: Kind): Promise<World> {
  const { brokers } = slot.server;
  const topic = `log-${uuidv7()}`;
  await createTopic(brokers, topic, 1);
  await createTopic(brokers, `${topic}.dead`, 1);
  const got: string[] = [];
  const events: SubscriberEvent[] = [];
  const onEvent = (event: SubscriberEvent): void => void events.push(event);
  const common = { topics: [topic], sessionTimeoutMs: 4000, onEvent };
  return {
    topic,
    got,
    events,
    async read() {
      const consumer = openConsumer(brokers, topic);
      if (kind === "pipeline") {
        const pipeline = createKafkaPipeline({
          ...common,
          consumer,
          producer: (transactionalId) => openProducer(brokers, { transactionalId, retries: 50, retryDelay: 20 }),
          handle: ({ payload }) => void got.push(String(payload)),
        });
        await pipeline.start();
        return { stop: () => pipeline.stop().then(() => consumer.close()) };
      }
      const producer = openProducer(brokers);
      const subscriber = createKafkaSubscriber({ ...common, consumer, producer });
      await subscriber.start("reader", async ({ body }) => {
        got.push(Buffer.from(body as Uint8Array).toString());
        return { status: "done" };
      });
      return {
        stop: async () => {
          await subscriber.stop();
          await Promise.all([consumer.close(), producer.close()]);
        },
      };
    },
  };
}

const numbers = (from: number, count: number): string[] => Array.from({ length: count }, (_, n) => String(from + n));

/** In record batches of ten. */
async function send(topic: string, values: readonly string[]): Promise<void> {
  await using producer = new ForeignProducer(slot.server.brokers);
  for (let i = 0; i < values.length; i += 10) {
    await producer.send(
      topic,
      values.slice(i, i + 10).map((value) => ({ key: `k${Number(value) % 7}`, value: Buffer.from(value) })),
    );
  }
}

async function makeAnew(topic: string, partitions = 1): Promise<void> {
  await deleteTopic(slot.server.brokers, topic);
  await createTopic(slot.server.brokers, topic, partitions);
}

async function arrive({ got }: World, values: readonly string[]): Promise<void> {
  const missing = (): string[] => values.filter((value) => !got.includes(value));
  await until(() => missing().length === 0, { what: "all messages", timeoutMs: 60_000 }).catch(() => undefined);
  expect(missing()).toEqual([]);
}

const committed = (topic: string): Promise<bigint> =>
  offsetOf(slot.server.brokers, topic, topic).then(({ offset }) => offset);

async function committedUntil(topic: string, offset: bigint): Promise<void> {
  await until(async () => (await committed(topic)) === offset, { what: `offset ${offset}`, timeoutMs: 60_000 });
}

/** The server loses the later half of what is in a partition, as a new leader that had not seen it. */
async function loseHalf(topic: string): Promise<void> {
  const { server } = slot;
  await server.kill();
  const folder = server.logFolder(topic, 0);
  const file = join(
    folder,
    readdirSync(folder).find((name) => name.endsWith(".log"))!,
  );
  truncateSync(file, Math.floor(statSync(file).size / 2));
  await server.restart();
}

describe.skipIf(slot.skipped).each(["subscriber", "pipeline"] as const)("a %s of a topic", (kind) => {
  it.each([
    ["with more records than it had read", 250],
    ["with fewer", 40],
  ])("that is made anew %s while it is read: all of the new one comes", async (_, count) => {
    const at = await world(kind);
    await send(at.topic, numbers(0, 100));
    const reading = await at.read();
    await arrive(at, numbers(0, 100));
    await committedUntil(at.topic, 100n);
    await makeAnew(at.topic);
    await send(at.topic, numbers(1000, count));
    await arrive(at, numbers(1000, count));
    await until(async () => (await committed(at.topic)) >= BigInt(count), { what: "the commit" });
    await reading.stop();
    expect(at.got.length).toBe(100 + count);
    expect(await committed(at.topic)).toBeLessThanOrEqual(BigInt(count + 1));
  });

  it("that is made anew while no process reads, though the group still has the old offset: all of the new one comes", async () => {
    const at = await world(kind);
    await send(at.topic, numbers(0, 100));
    const reading = await at.read();
    await arrive(at, numbers(0, 100));
    await committedUntil(at.topic, 100n);
    await reading.stop();
    const old = await offsetOf(slot.server.brokers, at.topic, at.topic);
    await makeAnew(at.topic);
    await send(at.topic, numbers(1000, 250));
    // As when the commit was under way, or the coordinator away, while the topic was deleted.
    await setOffset(slot.server.brokers, at.topic, at.topic, old.offset, old.metadata);
    const again = await at.read();
    await arrive(at, numbers(1000, 250));
    await again.stop();
    expect(at.got.length).toBe(350);
  });

  it("whose group is past its end: nothing that is written later is skipped, though it ends in between", async () => {
    const at = await world(kind);
    await setOffset(slot.server.brokers, at.topic, at.topic, 200n);
    const first = await at.read();
    await committedUntil(at.topic, 0n);
    await send(at.topic, numbers(0, 10));
    await arrive(at, numbers(0, 10));
    await first.stop();
    await send(at.topic, numbers(100, 250));
    const again = await at.read();
    await arrive(at, numbers(100, 250));
    await again.stop();
    expect(at.got.length).toBe(260);
  });

  it("whose log is cut while it is read: what is written in place of what was lost comes", async () => {
    const at = await world(kind);
    await send(at.topic, numbers(0, 100));
    const reading = await at.read();
    await arrive(at, numbers(0, 100));
    await committedUntil(at.topic, 100n);
    await loseHalf(at.topic);
    await send(at.topic, numbers(1000, 200));
    await arrive(at, numbers(1000, 200));
    await reading.stop();
    // Read on from the cut, not from the beginning.
    expect(at.got.length).toBe(300);
  });

  it("whose log is cut while no process reads: the same", async () => {
    const at = await world(kind);
    await send(at.topic, numbers(0, 100));
    const reading = await at.read();
    await arrive(at, numbers(0, 100));
    await committedUntil(at.topic, 100n);
    await reading.stop();
    await loseHalf(at.topic);
    await send(at.topic, numbers(1000, 200));
    const again = await at.read();
    await arrive(at, numbers(1000, 200));
    await again.stop();
    expect(at.got.length).toBe(300);
    expect(at.events.some((event) => event.type === "outage" && event.error.includes(at.topic))).toBe(true);
  });

  it("whose group a tool has set back: it is read from there", async () => {
    const at = await world(kind);
    await send(at.topic, numbers(0, 100));
    const reading = await at.read();
    await arrive(at, numbers(0, 100));
    await committedUntil(at.topic, 100n);
    await reading.stop();
    await setOffset(slot.server.brokers, at.topic, at.topic, 90n);
    const again = await at.read();
    await until(() => at.got.length >= 110, { what: "ten of them again" });
    await again.stop();
    expect(at.got.slice(100)).toEqual(numbers(90, 10));
  });
});
