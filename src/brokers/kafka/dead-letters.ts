import { deadHeaders } from "../shared/dead-letter.ts";
import type { KafkaProducer } from "./kafka-client.ts";
import { headersOf, type KafkaRecord } from "./kafka-record.ts";
import { partitionsOf } from "./kafka-topics.ts";
import { partitionOf } from "./partition.ts";
import { turnsOf } from "./turns.ts";

const PATIENCE_MS = 30_000;

/** Copies records to the topics of dead letters, as they were and with the reason. */
export class DeadLetters {
  readonly #producer: KafkaProducer;
  readonly #topicOf: (topic: string) => string;
  #spread = 0;

  constructor(producer: KafkaProducer, topicOf: (topic: string) => string) {
    this.#producer = producer;
    this.#topicOf = topicOf;
  }

  /** Resolves when it is there for sure. */
  async put(record: KafkaRecord, by: string, error: unknown, attempts: number): Promise<void> {
    const topic = this.#topicOf(record.topic);
    const count = await partitionsOf(topic, this.#producer);
    const partition = record.key === null ? this.#spread++ % count : partitionOf(record.key, count);
    const headers = new Map<Buffer, Buffer>();
    // Those of an earlier death are out of date.
    for (const [name, value] of record.headers) {
      if (name !== null && !isReason(name)) headers.set(name, value ?? Buffer.alloc(0));
    }
    for (const [name, value] of headersOf(deadHeaders(by, error, attempts))) headers.set(name, value);
    const { key, value } = record;
    const end = await turnsOf(this.#producer).take(PATIENCE_MS, new AbortController().signal);
    if (typeof end === "string") throw new Error(`The producer of dead letters has been busy for ${PATIENCE_MS} ms`);
    try {
      await this.#producer.send({
        messages: [
          { topic, partition, headers, ...(key === null ? {} : { key }), ...(value === null ? {} : { value }) },
        ],
        acks: -1,
        idempotent: true,
        autocreateTopics: false,
      });
    } finally {
      end();
    }
  }
}

function isReason(name: Buffer): boolean {
  return /^dead-(?:error|attempts|by|at)$/.test(name.toString());
}
