import { randomBytes } from "node:crypto";
import { Admin } from "@platformatic/kafka";
import { afterAll, describe, expect, it } from "vitest";
import {
  createKafkaPipeline,
  createKafkaPublisher,
  createKafkaSubscriber,
  type SubscriberEvent,
} from "../../../src/brokers/kafka/index.ts";
import type { PublishResult } from "../../../src/core/contracts.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { sample } from "../../../src/testing/broker/sample-message.ts";
import { serverOrSkip, startKafka, until } from "../../harness/index.ts";
import { ForeignProducer, offsetOf, TopicReader } from "../../support/kafka/foreign-client.ts";
import { kcatSend } from "../../support/kafka/kcat.ts";
import { createTopic, deleteTopic, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";

const slot = await serverOrSkip("Kafka", () => startKafka({ owned: true }));
const ends: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const end of ends) await end();
  await slot.stop();
});

/** Each has topics and a group of its own, and waits for sessions to end. */
const SIDE_BY_SIDE = { concurrent: true };
const ofEach = describe.skipIf(slot.skipped).each(["subscriber", "pipeline"] as const);

const SESSION_MS = 2000;
const never = (): AbortSignal => new AbortController().signal;

interface Reader {
  readonly got: string[];
  readonly events: SubscriberEvent[];
  readonly outages: () => string[];
}

/** A member of a group that rejects what begins with "bad". */
async function read(kind: "subscriber" | "pipeline", group: string, topics: string[]): Promise<Reader> {
  const { brokers } = slot.server;
  const got: string[] = [];
  const events: SubscriberEvent[] = [];
  const consumer = openConsumer(brokers, group);
  const onEvent = (event: SubscriberEvent): void => void events.push(event);
  const common = { consumer, topics, sessionTimeoutMs: SESSION_MS, maxAttempts: 2, onEvent };
  const backoff = { baseMs: 5, maxMs: 10 };
  const take = (body: string): void => {
    if (body.startsWith("bad")) throw new Error(`never: ${"why ".repeat(300)}`);
    got.push(body);
  };
  if (kind === "pipeline") {
    const pipeline = createKafkaPipeline({
      ...common,
      backoff,
      producer: (transactionalId) => openProducer(brokers, { transactionalId, retries: 50, retryDelay: 20 }),
      handle: ({ body }) => take(Buffer.from(body as Uint8Array).toString()),
    });
    ends.push(() => pipeline.stop().then(() => consumer.close()));
    await pipeline.start();
  } else {
    const producer = openProducer(brokers);
    const subscriber = createKafkaSubscriber({ ...common, backoff, producer });
    ends.push(() => subscriber.stop().then(() => Promise.all([consumer.close(), producer.close()])));
    await subscriber.start("reader", async ({ body }) => {
      take(Buffer.from(body as Uint8Array).toString());
      return { status: "done" };
    });
  }
  const outages = (): string[] => events.flatMap((event) => (event.type === "outage" ? [event.error] : []));
  return { got, events, outages };
}

async function topicsWithDead(...names: string[]): Promise<string[]> {
  const topics = names.map((name) => `${name}-${uuidv7()}`);
  for (const topic of topics) {
    await createTopic(slot.server.brokers, topic, 2);
    await createTopic(slot.server.brokers, `${topic}.dead`, 1);
  }
  return topics;
}

const BYTES = { "content-type": "application/octet-stream" };

async function send(topic: string, ...values: (string | Buffer)[]): Promise<void> {
  await using producer = new ForeignProducer(slot.server.brokers);
  await producer.send(
    topic,
    // Keys of their own: the same twenty again and again may leave out a partition.
    values.map((value) => ({ key: uuidv7(), value: Buffer.from(value), headers: BYTES })),
  );
}

ofEach("a %s of two topics", SIDE_BY_SIDE, (kind) => {
  it("goes on with one while the other is deleted, names that one, and reads it when it is back", async () => {
    const [living = "", deleted = ""] = await topicsWithDead("living", "deleted");
    const group = `g-${living}`;
    const { got, events, outages } = await read(kind, group, [deleted, living]);
    await send(living, "l-0");
    await send(deleted, "d-0");
    await until(() => got.length === 2, { what: "both topics" });

    events.length = 0;
    await deleteTopic(slot.server.brokers, deleted);
    // Longer than the session, and than a look at the topics lasts.
    for (let n = 1; n <= 16; n++) {
      await send(living, `l-${n}`);
      await until(() => got.includes(`l-${n}`), { what: "the living topic", timeoutMs: 10_000 });
      await new Promise((resolve) => setTimeout(resolve, 400));
    }
    const sum = async (): Promise<bigint> => {
      const admin = new Admin({ clientId: "admin", bootstrapBrokers: slot.server.brokers });
      const [found] = await admin.listConsumerGroupOffsets({ groups: [group] });
      await admin.close();
      const partitions = found?.topics.find(({ name }) => name === living)?.partitions ?? [];
      return partitions.reduce((all, { committedOffset }) => all + committedOffset, 0n);
    };
    // The pipeline reads past the markers of transactions and commits only with the next message.
    await until(async () => (await sum()) >= 17n, { what: "the commits of the living topic" });
    expect(outages().length).toBeGreaterThan(0);
    expect(outages().filter((error) => !error.includes(deleted) || error.includes(living))).toEqual([]);
    expect(events.at(-1)?.type).toBe("outage");

    await createTopic(slot.server.brokers, deleted, 3);
    await send(deleted, ...Array.from({ length: 20 }, (_, n) => `new-${n}`));
    await until(() => new Set(got.filter((one) => one.startsWith("new-"))).size === 20, {
      what: "the topic that is back, with one partition more",
      timeoutMs: 60_000,
    });
    await until(() => events.at(-1)?.type === "recovered", { what: "all being well" });
    await send(living, "l-last");
    await until(() => got.includes("l-last"), { what: "the living topic" });
    // A subscriber may get repeats of a topic that was made anew; the inbox drops them.
    const once = kind === "pipeline" ? got : got.filter((body) => body.startsWith("l-"));
    expect(once.toSorted()).toEqual([...new Set(once)].toSorted());
  });

  it("is read with the partitions that a topic gets later", async () => {
    const [topic = ""] = await topicsWithDead("growing");
    const { got } = await read(kind, `g-${topic}`, [topic]);
    const admin = new Admin({ clientId: "admin", bootstrapBrokers: slot.server.brokers });
    await admin.createPartitions({ topics: [{ name: topic, count: 5, assignments: null }] as never });
    await admin.close();
    await until(
      async () => {
        await send(topic, ...Array.from({ length: 20 }, (_, n) => `${n}-${Math.random()}`));
        return (await offsetOf(slot.server.brokers, `g-${topic}`, topic, 4)).offset > 0n;
      },
      { what: "the fifth partition", timeoutMs: 60_000, intervalMs: 500 },
    );
    expect(got.length).toBeGreaterThan(20);
  });
});

ofEach("a dead letter of a %s", SIDE_BY_SIDE, (kind) => {
  it.each([
    ["fits when it is compressed", Buffer.from("bad ".repeat(2000)), 8_300, ["whole"]],
    ["fits as it came, without its reasons", incompressible(8000), 8_300, ["as it came", "reasons"]],
    ["does not fit at all", incompressible(8000), 2_500, ["reasons"]],
  ] as const)(
    "that is too large for its topic is stored, and the rest goes on: one that %s",
    async (_, body, limit, forms) => {
      const topic = `large-${uuidv7()}`;
      const { brokers } = slot.server;
      await createTopic(brokers, topic, 1);
      await createTopic(brokers, `${topic}.dead`, 1, { "max.message.bytes": String(limit) });
      const { got, events } = await read(kind, `g-${topic}`, [topic]);
      await send(topic, body, "fine");
      await until(() => got.includes("fine"), { what: "what comes after it", timeoutMs: 60_000 });
      await until(() => events.some(({ type }) => type === "dead"), { what: "the dead letter", timeoutMs: 60_000 });
      const letters = await lettersOf(topic, forms.length);
      const formOf = ({ value, headers }: (typeof letters)[number]): string => {
        const isBody = value?.equals(body) === true && headers["content-type"] === BYTES["content-type"];
        const { "dead-error": error = "", "dead-attempts": attempts, "dead-topic": from } = headers;
        const hasReasons = error.includes("never: why") && attempts === "2";
        if (isBody) return hasReasons ? "whole" : "as it came";
        return hasReasons && from === topic && headers["dead-offset"] === "0" ? "reasons" : "broken";
      };
      expect(letters.map(formOf)).toEqual(forms);
      await until(async () => (await offsetOf(brokers, `g-${topic}`, topic)).offset >= 2n, { what: "the commit" });
    },
  );

  it("without a key is stored in a compacted topic", async () => {
    const topic = `compact-${uuidv7()}`;
    const { brokers } = slot.server;
    await createTopic(brokers, topic, 1);
    await createTopic(brokers, `${topic}.dead`, 1, { "cleanup.policy": "compact" });
    const { got } = await read(kind, `g-${topic}`, [topic]);
    await kcatSend(brokers, topic, ["bad one", "fine"], { headers: BYTES });
    await until(() => got.includes("fine"), { what: "what comes after it", timeoutMs: 60_000 });
    const [letter] = await lettersOf(topic, 1);
    expect(letter?.headers).toMatchObject({ "dead-topic": topic, "dead-offset": "0" });
  });
});

/** Bytes that no compression makes fewer. */
function incompressible(length: number): Buffer {
  return Buffer.concat([Buffer.from("bad "), randomBytes(length)]);
}

async function lettersOf(topic: string, count: number) {
  await using dead = new TopicReader(slot.server.brokers, `${topic}.dead`);
  return (await dead.until(count)).map(({ value, headers }) => ({
    value,
    headers: Object.fromEntries(headers.map(([name, text]) => [String(name), String(text)])),
  }));
}

describe.skipIf(slot.skipped)("a publisher of several topics", SIDE_BY_SIDE, () => {
  const told = (results: readonly PublishResult[]): string[] =>
    results.map((result) =>
      result.status === "unavailable" ? `unavailable ${result.route ?? "everything"}` : result.status,
    );

  function publisher() {
    const made = createKafkaPublisher({ producer: openProducer(slot.server.brokers) });
    ends.push(async () => made.close?.());
    return made;
  }

  it("waits for one that was there a moment ago, and rejects for one that never was", async () => {
    const [fine, gone, wrong] = [`fine-${uuidv7()}`, `gone-${uuidv7()}`, `wrong-${uuidv7()}`];
    await createTopic(slot.server.brokers, fine, 1);
    await createTopic(slot.server.brokers, gone, 1);
    const to = publisher();
    const batch = [sample(gone, 1), sample(fine, 2), sample(wrong, 3), sample(fine, 4)];
    expect(told(await to.publish(batch, never()))).toEqual(["published", "published", "rejected", "published"]);
    await deleteTopic(slot.server.brokers, gone);
    for (let round = 0; round < 3; round++) {
      const results = await to.publish(batch, never());
      expect(told(results)).toEqual([`unavailable ${gone}`, "published", "rejected", "published"]);
      expect(String((results[0] as { error: unknown }).error)).toContain(gone);
    }
    await createTopic(slot.server.brokers, gone, 1);
    await until(async () => told(await to.publish(batch, never()))[0] === "published", { what: "the topic" });
  });
});
