import { Admin } from "@platformatic/kafka";
import { afterAll, describe, expect, it } from "vitest";
import {
  createKafkaPublisher,
  createKafkaSubscriber,
  type KafkaSubscriberOptions,
  type SubscriberEvent,
} from "../../../src/brokers/kafka/index.ts";
import type { PublishResult } from "../../../src/core/contracts.ts";
import type { IncomingMessage, Message } from "../../../src/core/message.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { richSample, sample, samples } from "../../../src/testing/broker/sample-message.ts";
import { serverOrSkip, startKafka, until } from "../../harness/index.ts";
import { ForeignProducer, TopicReader } from "../../support/kafka/foreign-client.ts";
import { kcatRead, kcatSend } from "../../support/kafka/kcat.ts";
import { createTopic, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";

const slot = await serverOrSkip("Kafka", () => startKafka({ owned: true }));
const clients: { close(): Promise<unknown> }[] = [];
afterAll(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await slot.stop();
});

const never = (): AbortSignal => new AbortController().signal;
const statuses = (results: readonly PublishResult[]): string[] => results.map(({ status }) => status);

async function topicWithDead(configs = {}, partitions = 3): Promise<string> {
  const topic = `t-${uuidv7()}`;
  await createTopic(slot.server.brokers, topic, partitions, configs);
  await createTopic(slot.server.brokers, `${topic}.dead`, 1, { "max.message.bytes": "12000000" });
  return topic;
}

function publisher(more: Partial<Parameters<typeof createKafkaPublisher>[0]> = {}) {
  const producer = openProducer(slot.server.brokers);
  clients.push(producer);
  return createKafkaPublisher({ producer, ...more });
}

/** Remembers what it is given; what it rejects is put aside. */
async function subscribe(topic: string, more: Partial<KafkaSubscriberOptions> = {}) {
  const { brokers } = slot.server;
  const [consumer, producer] = [openConsumer(brokers, `g-${topic}`), openProducer(brokers)];
  const got: IncomingMessage[] = [];
  const events: SubscriberEvent[] = [];
  const subscriber = createKafkaSubscriber({
    consumer,
    producer,
    topics: [topic],
    onEvent: (event) => void events.push(event),
    ...more,
  });
  clients.push(producer, { close: () => subscriber.stop().then(() => consumer.close()) });
  await subscriber.start("reader", async (message) => {
    got.push(message);
    try {
      JSON.parse(Buffer.from(message.body as string).toString());
      return { status: "done" };
    } catch (error) {
      return { status: "rejected", error };
    }
  });
  return { got, events, subscriber };
}

describe.skipIf(slot.skipped)("two batches of one Kafka publisher", () => {
  it("a batch that waits for a long one is not out: both go through", async () => {
    const topic = await topicWithDead({}, 1);
    // Each message is a request of its own, so that the batch takes much longer than an answer may.
    const body = JSON.stringify("x".repeat(1000));
    const long = Array.from({ length: 300 }, () => sample(topic, 0, { key: "a", body }));
    const one = publisher({ maxBatchBytes: 1024, timeoutMs: 250 });
    const progress = (kind: "new" | "retry") => ({ kind, mayBegin: () => true, onResult: () => undefined });
    await one.publish([sample(topic, 0)], never());
    const startedAt = performance.now();
    const fresh = one.publish(long, never(), progress("new"));
    const again = one.publish([sample(topic, 1, { key: "b" })], never(), progress("retry"));
    expect(statuses(await again)).toEqual(["published"]);
    expect(new Set(statuses(await fresh))).toEqual(new Set(["published"]));
    expect(performance.now() - startedAt).toBeGreaterThan(250);
  });
});

describe.skipIf(slot.skipped)("Kafka and clients of others", () => {
  it("kcat reads what we publish: keys, headers, and the partition that it would have chosen", async () => {
    const topic = await topicWithDead();
    const keys = ["o-1", "o-2", "Schlüssel 🔑", "o-4"];
    const batch = [...samples(topic, keys, 2), richSample(topic)];
    expect(statuses(await publisher().publish(batch, never()))).toEqual(batch.map(() => "published"));
    for (const key of keys) await kcatSend(slot.server.brokers, topic, ["kcat"], { key });
    const got = await kcatRead(slot.server.brokers, topic);
    for (const key of keys) {
      const mine = got.filter((one) => one.key === key);
      expect(mine.map(({ payload }) => payload)).toEqual(["0", "1", "kcat"]);
      expect(new Set(mine.map(({ partition }) => partition)).size).toBe(1);
    }
    const rich = got.find((one) => one.headers["txbox-type"] === "order_créé");
    expect(rich).toMatchObject({
      key: "Schlüssel 🔑/%s",
      payload: batch.at(-1)?.body,
      headers: {
        "txbox-id": batch.at(-1)?.id,
        "txbox-aggregate-id": "o-世界-1",
        "correlation-id": "c-ü",
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
      },
    });
  });

  it("kcat reads our CloudEvents by the names of the specification", async () => {
    const topic = await topicWithDead();
    const message = sample(
      topic,
      { total: 1 },
      { key: "o-1", aggregateId: "o-1", headers: { contentType: "application/json" } },
    );
    await publisher({ envelope: "cloudevents", source: "/shop" }).publish([message], never());
    const [got] = await kcatRead(slot.server.brokers, topic);
    expect(got).toMatchObject({
      key: "o-1",
      payload: '{"total":1}',
      headers: {
        ce_specversion: "1.0",
        ce_id: message.id,
        ce_source: "/shop",
        ce_type: "sampled",
        ce_subject: "o-1",
        ce_time: message.createdAt.toISOString(),
        ce_partitionkey: "o-1",
        "content-type": "application/json",
      },
    });
  });

  it("we consume what kcat sends: plain, as CloudEvents, and as txbox writes it", async () => {
    const topic = await topicWithDead();
    const { got } = await subscribe(topic);
    const { brokers } = slot.server;
    await kcatSend(brokers, topic, ['{"n":1}'], { key: "k", headers: { tenant: "t-1" } });
    const cloud = { ce_specversion: "1.0", ce_id: "e-1", ce_source: "/elsewhere", ce_type: "order.created" };
    await kcatSend(brokers, topic, ['{"n":2}'], {
      key: "k",
      headers: { ...cloud, "content-type": "application/json" },
    });
    await kcatSend(brokers, topic, ['{"n":3}'], { key: "k", headers: { "txbox-id": "i-1", "txbox-type": "changed" } });
    await until(() => got.length === 3, { what: "three messages" });
    expect(got[0]).toMatchObject({ stream: topic, key: "k", routingKey: topic, headers: { tenant: "t-1" } });
    expect(got[0]?.id).toBeUndefined();
    expect(got[1]).toMatchObject({
      id: "/elsewhere#e-1",
      type: "order.created",
      key: "k",
      headers: { contentType: "application/json" },
    });
    expect(got[2]).toMatchObject({ id: "i-1", type: "changed", key: "k" });
  });

  it("an id by offset, for those whose equal messages are not the same", async () => {
    const topic = await topicWithDead({}, 1);
    const { got } = await subscribe(topic, { foreignId: "offset" });
    await kcatSend(slot.server.brokers, topic, ["1", "1"]);
    await until(() => got.length === 2, { what: "two messages" });
    const admin = new Admin({ clientId: "admin", bootstrapBrokers: slot.server.brokers });
    clients.push(admin);
    const { id } = (await admin.metadata({ topics: [topic] })).topics.get(topic)!;
    expect(got.map((message) => message.id)).toEqual([`${topic}/0/0@${id}.0`, `${topic}/0/1@${id}.0`]);
  });

  it.each(["gzip", "zstd"] as const)("compressed with %s, both ways", async (compression) => {
    const topic = await topicWithDead();
    const { got } = await subscribe(topic);
    const batch = samples(topic, ["a", "b"], 50);
    await publisher({ compression }).publish(batch, never());
    expect((await kcatRead(slot.server.brokers, topic)).length).toBe(100);
    await until(() => got.length === 100, { what: "all messages" });
  });
});

describe.skipIf(slot.skipped)("a batch whose outcome is unknown", () => {
  it("does not make the next one, of the same size, look like a repeat of it", async () => {
    const topic = await topicWithDead({}, 1);
    const producer = openProducer(slot.server.brokers, { requestTimeout: 500, retries: false });
    clients.push(producer);
    const cautious = createKafkaPublisher({ producer });
    await until(async () => statuses(await cautious.publish([sample(topic, "first")], never())).includes("published"), {
      what: "the first message",
    });
    slot.server.pause();
    const unknown = await cautious.publish([sample(topic, "a1"), sample(topic, "a2")], never());
    slot.server.resume();
    expect(statuses(unknown)).toEqual(["unavailable", "unavailable"]);
    const next = [sample(topic, "b1"), sample(topic, "b2")];
    await until(async () => statuses(await cautious.publish(next, never()).catch(() => [])).includes("published"), {
      what: "the broker",
    });
    const got = (await kcatRead(slot.server.brokers, topic)).map(
      ({ payload }) => JSON.parse(String(payload)) as string,
    );
    // Whether it was written is the broker's secret; what was confirmed is there.
    expect(got.filter((one) => !one.startsWith("a"))).toEqual(["first", "b1", "b2"]);
  });
});

describe.skipIf(slot.skipped)("bad input to Kafka and from it", () => {
  it("puts a message of 10 MB, one that is no JSON and one in another encoding aside with their bytes, and goes on", async () => {
    const topic = await topicWithDead({ "max.message.bytes": "12000000" });
    const { got, events } = await subscribe(topic);
    const bad = [Buffer.alloc(10_000_000, "x"), Buffer.from("no JSON"), Buffer.from([0xff, 0xfe, 0x7b, 0x00])];
    await using foreign = new ForeignProducer(slot.server.brokers);
    for (const value of bad)
      await foreign.send(topic, [{ key: Buffer.from([0xff, 0x00]), value, headers: { "x-": Buffer.from([0xff]) } }]);
    await foreign.send(topic, [
      { key: "fine", value: Buffer.from("1") },
      { key: null, value: null },
    ]);
    await using dead = new TopicReader(slot.server.brokers, `${topic}.dead`);
    // A tombstone has no body, and that is no JSON either.
    const letters = await dead.until(4);
    const hex = (values: readonly (Buffer | null)[]): Set<string | undefined> =>
      new Set(values.map((value) => value?.toString("hex")));
    expect(hex(letters.map(({ value }) => value))).toEqual(hex([...bad, null]));
    for (const { headers } of letters) expect(headers.map(([name]) => String(name))).toContain("dead-error");
    expect(
      letters.filter(({ value }) => value !== null).every(({ key }) => key?.equals(Buffer.from([0xff, 0x00]))),
    ).toBe(true);
    expect(got.some(({ key }) => key === "fine")).toBe(true);
    expect(events.filter(({ type }) => type === "dead")).toHaveLength(4);
  });

  it("sends more than fits into one record batch, in order", async () => {
    const topic = await topicWithDead({}, 1);
    const batch = Array.from({ length: 30 }, (_, n) => sample(topic, n, { body: `"${n}${"x".repeat(100_000)}"` }));
    expect(statuses(await publisher().publish(batch, never()))).toEqual(batch.map(() => "published"));
    await using reader = new TopicReader(slot.server.brokers, topic);
    const got = (await reader.until(30)).map(({ value }) => Number.parseInt(String(value).slice(1, 4), 10));
    expect(got).toEqual(Array.from({ length: 30 }, (_, n) => n));
  });

  it("rejects only the record that Kafka finds invalid: one without a key in a compacted topic", async () => {
    const topic = await topicWithDead({ "cleanup.policy": "compact" }, 1);
    const batch: Message[] = [
      sample(topic, 1, { key: "a" }),
      sample(topic, 2, { key: null }),
      sample(topic, 3, { key: "b" }),
    ];
    const results = await publisher().publish(batch, never());
    expect(statuses(results)).toEqual(["published", "rejected", "published"]);
    expect(String((results[1] as { error: unknown }).error)).toMatch(
      /Compacted topic cannot accept message without key|not valid/,
    );
  });

  it("a missing topic: the error names it and the option that creates it; the option creates it", async () => {
    const { brokers } = slot.server;
    const topic = `missing-${uuidv7()}`;
    const [result] = await publisher().publish([sample(topic, 1)], never());
    expect(result?.status).toBe("rejected");
    expect(String((result as { error: unknown }).error)).toMatch(
      new RegExp(`no topic "${topic}".*declare: \\{ admin, partitions \\}`),
    );
    await expect(subscribe(topic)).rejects.toThrow(new RegExp(`no topic "${topic}".*declare`));

    const admin = new Admin({ clientId: "admin", bootstrapBrokers: brokers });
    clients.push(admin);
    const declare = { admin, partitions: 5, configs: { "retention.ms": "1000000" } };
    const declaring = publisher({ declare });
    // A leader may have to be found first, which is no error.
    await until(async () => statuses(await declaring.publish([sample(topic, 1)], never()))[0] === "published", {
      what: "the topic",
    });
    const { got } = await subscribe(topic, { declare });
    await until(() => got.length === 1, { what: "the message" });
    const { topics } = await admin.metadata({ topics: [topic, `${topic}.dead`], forceUpdate: true });
    expect([topics.get(topic)?.partitionsCount, topics.get(`${topic}.dead`)?.partitionsCount]).toEqual([5, 5]);
  });

  it("wrong credentials: one clear error, from the publisher and from the subscriber", async () => {
    const sasl = { mechanism: "PLAIN", username: "txbox", password: "wrong" };
    const { saslBrokers } = slot.server;
    const [producer, consumer] = [openProducer(saslBrokers, { sasl }), openConsumer(saslBrokers, "g", { sasl })];
    clients.push(producer, consumer);
    const refused = /^Kafka refused the credentials of this client\. Check mechanism, username and password/;
    await expect(createKafkaPublisher({ producer }).publish([sample("t", 1)], never())).rejects.toThrow(refused);
    const subscriber = createKafkaSubscriber({ consumer, producer, topics: ["t"] });
    await expect(subscriber.start("reader", async () => ({ status: "done" }))).rejects.toThrow(refused);
    await subscriber.stop();
    const right = openProducer(saslBrokers, { sasl: { ...sasl, password: "secret" } });
    clients.push(right);
    const topic = await topicWithDead();
    expect(statuses(await createKafkaPublisher({ producer: right }).publish([sample(topic, 1)], never()))).toEqual([
      "published",
    ]);
  });

  it("a topic function that throws or gives nothing fails its own message only, and one key may go to two topics in order", async () => {
    const [one, two] = [await topicWithDead(), await topicWithDead()];
    const topics: Record<string, string> = { one, two, none: "" };
    const choosing = publisher({
      topic: ({ type }) => {
        if (type === "throws") throw new Error("no idea");
        return topics[type] ?? "";
      },
    });
    const batch = ["one", "two", "throws", "none", "one"].map((type, n) =>
      sample("s", n, { type, key: n < 2 ? "k" : `k${n}` }),
    );
    expect(statuses(await choosing.publish(batch, never()))).toEqual([
      "published",
      "published",
      "failed",
      "rejected",
      "published",
    ]);
    expect((await kcatRead(slot.server.brokers, two)).length).toBe(1);
  });
});
