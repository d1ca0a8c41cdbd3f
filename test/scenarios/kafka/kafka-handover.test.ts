import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, it } from "vitest";
import { createKafkaPublisher, createKafkaSubscriber, type SubscriberEvent } from "../../../src/brokers/kafka/index.ts";
import type { Handle, Subscriber } from "../../../src/core/contracts.ts";
import { uuidv7 } from "../../../src/core/uuid.ts";
import { samples } from "../../../src/testing/broker/sample-message.ts";
import { serverOrSkip, startKafka, until } from "../../harness/index.ts";
import { createTopic, openConsumer, openProducer } from "../../support/kafka/kafka-clients.ts";

const slot = await serverOrSkip("Kafka", () => startKafka({ owned: true }));
const ends: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  slot.server.resume();
  for (const end of ends) await end();
  await slot.stop();
});

const KEYS = Array.from({ length: 20 }, (_, i) => `k${i}`);
const EACH = 20;

interface Handled {
  readonly by: string;
  readonly key: string;
  readonly n: number;
}

/** A topic with messages, and members of one group that note what they handle. There is no inbox to hide repeats. */
async function group(handleMs: number, sessionTimeoutMs = 4000) {
  const { brokers } = slot.server;
  const topic = `h-${uuidv7()}`;
  await createTopic(brokers, topic, 6);
  await createTopic(brokers, `${topic}.dead`, 1);
  const publisher = createKafkaPublisher({ producer: openProducer(brokers) });
  ends.push(async () => publisher.close?.());
  const all = samples(topic, KEYS, EACH);
  await until(async () => (await publisher.publish(all, new AbortController().signal))[0]?.status === "published", {
    what: "the messages",
  });
  const handled: Handled[] = [];
  const events: SubscriberEvent[] = [];
  async function join(
    by: string,
    wait: (signal: AbortSignal) => Promise<unknown> = () => sleep(handleMs),
  ): Promise<Subscriber> {
    const [consumer, producer] = [openConsumer(brokers, topic), openProducer(brokers)];
    const onEvent = (event: SubscriberEvent): void => void events.push(event);
    const subscriber = createKafkaSubscriber({ consumer, producer, topics: [topic], sessionTimeoutMs, onEvent });
    ends.push(
      () => subscriber.stop(),
      () => Promise.all([consumer.close(), producer.close()]),
    );
    const handle: Handle = async ({ key, body }, signal) => {
      await wait(signal);
      if (signal.aborted) return { status: "unavailable", error: new Error("given to another") };
      handled.push({ by, key: String(key), n: Number(String(Buffer.from(body as Uint8Array))) });
      return { status: "done" };
    };
    await subscriber.start(by, handle);
    return subscriber;
  }
  const count = (by: string): number => handled.filter((one) => one.by === by).length;
  return { join, handled, count, events };
}

describe.skipIf(slot.skipped)("partitions that change hands", () => {
  it("when a member joins, what is in hand ends and is committed first: nothing is handled twice, every key in order", async () => {
    const { join, handled, count } = await group(20);
    await join("first");
    await until(() => count("first") > 30, { what: "messages of the first" });
    await join("second");
    await until(() => handled.length >= KEYS.length * EACH, { what: "all messages", timeoutMs: 60_000 });
    await sleep(300);
    expect(handled.length).toBe(KEYS.length * EACH);
    expect(count("second")).toBeGreaterThan(0);
    for (const key of KEYS) {
      const mine = handled.filter((one) => one.key === key);
      expect(mine.map(({ n }) => n)).toEqual(Array.from({ length: EACH }, (_, n) => n));
    }
  });

  it("when a member leaves, the same", async () => {
    const { join, handled, count } = await group(20);
    const first = await join("first");
    await join("second");
    await until(() => count("first") > 30, { what: "messages of the first" });
    await first.stop();
    const left = count("first");
    await until(() => handled.length >= KEYS.length * EACH, { what: "all messages", timeoutMs: 60_000 });
    await sleep(300);
    expect(count("first")).toBe(left);
    expect(handled.length).toBe(KEYS.length * EACH);
    for (const key of KEYS) {
      const mine = handled.filter((one) => one.key === key);
      expect(mine.map(({ n }) => n)).toEqual(Array.from({ length: EACH }, (_, n) => n));
    }
  });

  it("a handler that does not end in time has its signal aborted, and what it says then is not committed", async () => {
    const { join, handled, count } = await group(1, 2000);
    const stuck = Promise.withResolvers<void>();
    let aborted = 0;
    await join("first", (signal) => {
      signal.addEventListener("abort", () => aborted++);
      return stuck.promise;
    });
    await sleep(300);
    await join("second");
    await until(() => count("second") > 0, { what: "messages of the second", timeoutMs: 60_000 });
    expect(aborted).toBeGreaterThan(0);
    stuck.resolve();
    await until(() => handled.length >= KEYS.length * EACH, { what: "all messages", timeoutMs: 60_000 });
    expect(new Set(handled.map(({ key, n }) => `${key} ${n}`)).size).toBe(KEYS.length * EACH);
  });

  it("what comes while no process reads is not skipped, though the group began with the latest", async () => {
    const { brokers } = slot.server;
    const topic = `h-${uuidv7()}`;
    await createTopic(brokers, topic, 2);
    await createTopic(brokers, `${topic}.dead`, 1);
    const got = new Set<unknown>();
    async function join(): Promise<Subscriber> {
      const [consumer, producer] = [openConsumer(brokers, topic), openProducer(brokers)];
      const subscriber = createKafkaSubscriber({ consumer, producer, topics: [topic], from: "latest" });
      ends.push(
        () => subscriber.stop(),
        () => Promise.all([consumer.close(), producer.close()]),
      );
      await subscriber.start("c", async ({ id }) => {
        got.add(id);
        return { status: "done" };
      });
      return subscriber;
    }
    const first = await join();
    const probe = openConsumer(brokers, topic);
    ends.push(() => probe.close());
    const asked = { topics: [{ topic, partitions: [0, 1] }] };
    const begun = async (): Promise<boolean> =>
      (await probe.listCommittedOffsets(asked)).get(topic)?.every((offset) => offset === 0n) === true;
    await until(begun, { what: "the beginning to be known" });
    await first.stop();
    const publisher = createKafkaPublisher({ producer: openProducer(brokers) });
    ends.push(async () => publisher.close?.());
    const all = samples(topic, KEYS, 1);
    const results = await publisher.publish(all, new AbortController().signal);
    expect(new Set(results.map(({ status }) => status))).toEqual(new Set(["published"]));
    await join();
    await until(() => got.size === KEYS.length, { what: "what came meanwhile" });
  });

  it("a member that the broker cannot hear notices by itself that its partitions may be another's", async () => {
    const { join, handled, events } = await group(1, 1500);
    const signals: AbortSignal[] = [];
    const gate = Promise.withResolvers<void>();
    await join("first", (signal) => {
      signals.push(signal);
      return gate.promise;
    });
    await until(() => signals.length > 0, { what: "messages in hand" });
    slot.server.pause();
    await until(() => signals.every(({ aborted }) => aborted), { what: "the end of the session", timeoutMs: 60_000 });
    slot.server.resume();
    gate.resolve();
    await until(() => handled.length >= KEYS.length * EACH, { what: "all messages", timeoutMs: 40_000 });
    expect(new Set(handled.map(({ key, n }) => `${key} ${n}`)).size).toBe(KEYS.length * EACH);
    expect(events.filter(({ type }) => type === "dead" || type === "retry")).toEqual([]);
  });
});
