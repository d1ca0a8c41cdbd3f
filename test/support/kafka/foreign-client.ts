import kafkajs, { type Consumer, type Kafka, type Producer } from "kafkajs";
import type { KafkaRecord } from "../../../src/brokers/kafka/kafka-record.ts";
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
    await until(() => this.records.length >= count, { what: `${count} records`, timeoutMs: 15_000 });
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
        this.records.push({ topic, partition, offset: BigInt(offset), key, value, headers });
      },
    });
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
