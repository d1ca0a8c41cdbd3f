import { deadHeaders } from "../../core/dead-letter.ts";
import type { KafkaProducer, KafkaRecordToSend } from "./kafka-client.ts";
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
    const letter = deadRecord(record, topic, count, this.#spread++, { by, error, attempts });
    const end = await turnsOf(this.#producer).take(PATIENCE_MS, new AbortController().signal);
    if (typeof end === "string") throw new Error(`The producer of dead letters has been busy for ${PATIENCE_MS} ms`);
    try {
      await this.#producer.send({
        messages: [letter],
        acks: -1,
        idempotent: true,
        autocreateTopics: false,
      });
    } finally {
      end();
    }
  }
}

export interface Reason {
  by: string;
  error: unknown;
  attempts: number;
}

/** The same bytes under another topic; its key keeps it among its like. */
export function deadRecord(
  { key, value, headers }: KafkaRecord,
  topic: string,
  partitions: number,
  spread: number,
  { by, error, attempts }: Reason,
): KafkaRecordToSend {
  const all = new Map<Buffer, Buffer>();
  // The reasons of an earlier death are out of date.
  for (const [name, text] of headers) if (name !== null && !isReason(name)) all.set(name, text ?? Buffer.alloc(0));
  for (const [name, text] of headersOf(deadHeaders(by, error, attempts))) all.set(name, text);
  return {
    topic,
    partition: key === null ? spread % partitions : partitionOf(key, partitions),
    headers: all,
    ...(key === null ? {} : { key }),
    ...(value === null ? {} : { value }),
  };
}

function isReason(name: Buffer): boolean {
  return /^dead-(?:error|attempts|by|at)$/.test(name.toString());
}
