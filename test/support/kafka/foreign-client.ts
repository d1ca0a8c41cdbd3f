import * as platformatic from "@platformatic/kafka";
import kafkajs, { type Consumer, type Kafka, type Producer } from "kafkajs";
import type { KafkaRecord } from "../../../src/brokers/kafka/kafka-envelope.ts";
import { until } from "../../harness/deadline.ts";

// It computes a negative delay for timers now and then, which Node says aloud.
process.removeAllListeners("warning");

function connect(brokers: string[]): Kafka {
  return new kafkajs.Kafka({
    clientId: "foreign",
    brokers,
    logLevel: kafkajs.logLevel.NOTHING,
    retry: { initialRetryTime: 50, retries: 20 },
  });
}

/** All records of a topic from its beginning, read by a client that is not the adapter's. */
export class TopicReader implements AsyncDisposable {
  readonly records: KafkaRecord[] = [];
  readonly #consumer: Consumer;
  readonly #started: Promise<void>;

  constructor(brokers: string[], topic: string) {
    this.#consumer = connect(brokers).consumer({
      groupId: `reader-${topic}-${Math.random()}`,
      maxWaitTimeInMs: 50,
      readUncommitted: false,
    });
    this.#started = this.#start(topic);
    this.#started.catch(() => undefined);
  }

  async until(count: number): Promise<readonly KafkaRecord[]> {
    await this.#started;
    await until(() => this.records.length >= count, { what: `${count} records`, timeoutMs: 60_000 });
    return this.records;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#started.catch(() => undefined);
    await this.#consumer.disconnect();
  }

  async #start(topic: string): Promise<void> {
    await this.#consumer.connect();
    await this.#consumer.subscribe({ topic, fromBeginning: true });
    await this.#consumer.run({
      eachMessage: async ({ partition, message }) => {
        const headers = Object.entries(message.headers ?? {}).flatMap(([name, value]) =>
          [value].flat().map((one) => [Buffer.from(name), one === undefined ? null : Buffer.from(one)] as const),
        );
        const { offset, key, value } = message;
        const place = { topic, topicId: "", partition, offset: BigInt(offset), epoch: -1 };
        this.records.push({ ...place, key, value, headers });
      },
    });
  }
}

export interface ForeignOffset {
  readonly offset: bigint;
  readonly metadata: string;
}

/** Sets the offset of a group without members, as the tools of Kafka do it. */
export async function setOffset(
  bootstrapBrokers: string[],
  groupId: string,
  topic: string,
  offset: bigint,
  metadata = "",
): Promise<void> {
  const client = new platformatic.Consumer({
    clientId: "tool",
    groupId,
    bootstrapBrokers,
    retries: 20,
    retryDelay: 50,
  });
  try {
    const coordinator = await client.findGroupCoordinator();
    const connection = (await client.connectToBrokers([coordinator])).get(coordinator)!;
    const place = { committedOffset: offset, committedLeaderEpoch: -1, committedMetadata: metadata };
    const topics = [{ name: topic, partitions: [{ partitionIndex: 0, ...place }] }];
    await platformatic.offsetCommitV9.api.async(connection, groupId, -1, "", null, topics);
  } finally {
    await client.close();
  }
}

/** What a group has committed for a partition. */
export async function offsetOf(brokers: string[], groupId: string, topic: string, wanted = 0): Promise<ForeignOffset> {
  const admin = connect(brokers).admin();
  await admin.connect();
  try {
    const [found] = await admin.fetchOffsets({ groupId, topics: [topic] });
    const { offset = "-1", metadata } = found?.partitions.find(({ partition }) => partition === wanted) ?? {};
    return { offset: BigInt(offset), metadata: metadata ?? "" };
  } finally {
    await admin.disconnect();
  }
}

export interface ForeignRecord {
  key?: Buffer | string | null;
  value: Buffer | null;
  headers?: Record<string, Buffer | string>;
  partition?: number;
}

/** A producer that is not the adapter's; partitions by key as the Java client does. */
export class ForeignProducer implements AsyncDisposable {
  readonly #brokers: string[];
  #producer: Promise<Producer> | undefined;

  constructor(brokers: string[]) {
    this.#brokers = brokers;
  }

  async send(topic: string, messages: ForeignRecord[]): Promise<void> {
    this.#producer ??= this.#open();
    await (await this.#producer).send({ topic, messages, acks: -1 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#producer)?.disconnect();
  }

  async #open(): Promise<Producer> {
    const createPartitioner = kafkajs.Partitioners.DefaultPartitioner;
    const producer = connect(this.#brokers).producer({ createPartitioner });
    await producer.connect();
    return producer;
  }
}
