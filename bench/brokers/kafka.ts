import { randomUUID } from "node:crypto";
import { Admin, Consumer, Producer, stringSerializers } from "@platformatic/kafka";
import { createKafkaPublisher, createKafkaSubscriber } from "../../src/brokers/kafka/index.ts";
import type { Subscriber } from "../../src/index.ts";
import { createGate } from "../lib/gate.ts";
import { STREAM } from "../lib/messages.ts";
import { type Broker, CONCURRENCY, CONSUMER, PREFETCH } from "./broker.ts";

const PARTITIONS = [0, 1, 2, 3];
/** How often offsets are committed by hand. */
const COMMIT_MS = 50;
const END = -1n;

export async function openKafka(address: string): Promise<Broker> {
  const bootstrapBrokers = address.split(",");
  const common = (): { clientId: string; bootstrapBrokers: string[] } => ({ clientId: randomUUID(), bootstrapBrokers });
  const admin = new Admin({ ...common(), retries: 20, retryDelay: 100 });
  const producer = new Producer({ ...common(), idempotent: true, retries: 3, retryDelay: 100 });
  const textProducer = new Producer({
    ...common(),
    idempotent: true,
    retries: 3,
    retryDelay: 100,
    serializers: stringSerializers,
  });
  const consumer = (): Consumer => new Consumer({ ...common(), groupId: CONSUMER, retries: false });
  let start: bigint[] = [];

  const ends = async (): Promise<bigint[]> => {
    const partitions = PARTITIONS.map((partitionIndex) => ({ partitionIndex, timestamp: END }));
    const [topic] = await admin.listOffsets({ topics: [{ name: STREAM, partitions }] });
    return byPartition(topic?.partitions.map(({ partitionIndex, offset }) => [partitionIndex, offset]) ?? []);
  };
  const committed = async (): Promise<bigint[]> => {
    const [group] = await admin.listConsumerGroupOffsets({ groups: [CONSUMER] });
    const topic = group?.topics.find(({ name }) => name === STREAM);
    return byPartition(topic?.partitions.map((one) => [one.partitionIndex, one.committedOffset]) ?? []);
  };

  return {
    async reset() {
      const known = await admin.listTopics();
      const missing = [STREAM, `${STREAM}.dead`].filter((name) => !known.includes(name));
      if (missing.length > 0) await admin.createTopics({ topics: missing, partitions: PARTITIONS.length, replicas: 1 });
      start = await ends();
      // Whatever is there already has been read.
      const partitionOffsets = start.map((offset, partition) => ({ partition, offset }));
      await admin.alterConsumerGroupOffsets({ groupId: CONSUMER, topics: [{ name: STREAM, partitionOffsets }] });
    },
    arrived: async () => distance(start, await ends()),
    unread: async () => distance(await committed(), await ends()),
    publisher: () => Promise.resolve(createKafkaPublisher({ producer })),
    subscriber: () => Promise.resolve(withConsumer(consumer(), producer)),
    async rawPublisher(messages) {
      // No part of the API: a commit that this one is compared with may not have it.
      const { encodeMessage } = await import("../../src/brokers/kafka/kafka-envelope.ts");
      // Text, as an application has it: the client makes bytes of it.
      const ready = messages.map((message) => ({
        topic: STREAM,
        key: message.key ?? "",
        value: String(message.body),
        headers: textHeadersOf(encodeMessage(message, STREAM, "native", undefined).headers),
      }));
      return (from: number, to: number) => textProducer.send({ messages: ready.slice(from, to), acks: -1 });
    },
    async rawConsumer(handle) {
      const gate = createGate(CONCURRENCY);
      const reading = consumer();
      const offsets = new Offsets();
      const stream = await reading.consume({
        topics: [STREAM],
        mode: "committed",
        fallbackMode: "earliest",
        autocommit: false,
        highWaterMark: PREFETCH,
      });
      let inHand = 0;
      stream.on("data", ({ partition, offset, value, headers }) => {
        offsets.took(partition, offset);
        inHand += 1;
        if (inHand >= PREFETCH) stream.pause();
        void gate(() => handle({ id: String(headerOf(headers, "txbox-id")), body: value.toString() })).then(() => {
          offsets.done(partition, offset);
          inHand -= 1;
          if (inHand < PREFETCH && stream.isPaused()) stream.resume();
        });
      });
      const commit = async (): Promise<void> => {
        const news = offsets.news();
        if (news.length > 0) await reading.commit({ offsets: news });
      };
      const timer = setInterval(() => void commit(), COMMIT_MS);
      return async () => {
        clearInterval(timer);
        await commit();
        await stream.close();
        await reading.close();
      };
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([admin.close(), producer.close(), textProducer.close()]);
    },
  };
}

/** A subscriber whose consumer ends with it. */
function withConsumer(consumer: Consumer, producer: Producer): Subscriber {
  const subscriber = createKafkaSubscriber({ consumer, producer, topics: [STREAM] });
  return {
    start: (name, handle) => subscriber.start(name, handle),
    async stop() {
      await subscriber.stop();
      await consumer.close();
    },
  };
}

/** What may be committed: all before the oldest message in hand. */
class Offsets {
  readonly #inHand = PARTITIONS.map(() => new Set<bigint>());
  readonly #end = PARTITIONS.map(() => 0n);
  readonly #changed = new Set<number>();

  took(partition: number, offset: bigint): void {
    this.#inHand[partition]!.add(offset);
    this.#end[partition] = offset + 1n;
  }

  done(partition: number, offset: bigint): void {
    this.#inHand[partition]!.delete(offset);
    this.#changed.add(partition);
  }

  news(): { topic: string; partition: number; offset: bigint; leaderEpoch: number }[] {
    const news = Array.from(this.#changed, (partition) => {
      const [oldest = this.#end[partition]!] = this.#inHand[partition]!;
      return { topic: STREAM, partition, offset: oldest, leaderEpoch: -1 };
    });
    this.#changed.clear();
    return news;
  }
}

function textHeadersOf(headers: ReadonlyMap<Buffer, Buffer>): Record<string, string> {
  return Object.fromEntries(Array.from(headers, ([name, value]) => [name.toString(), value.toString()]));
}

function byPartition(pairs: readonly [partition: number, offset: bigint][]): bigint[] {
  const offsets = PARTITIONS.map(() => 0n);
  for (const [partition, offset] of pairs) offsets[partition] = offset;
  return offsets;
}

function distance(from: readonly bigint[], to: readonly bigint[]): number {
  return Number(to.reduce((sum, offset, partition) => sum + offset - (from[partition] ?? 0n), 0n));
}

function headerOf(headers: ReadonlyMap<Buffer, Buffer>, wanted: string): Buffer | undefined {
  for (const [name, value] of headers) if (name.equals(Buffer.from(wanted))) return value;
  return undefined;
}
