import { type DeadLetterForm, deadLetterForms } from "./dead-letter-forms.ts";
import type { KafkaProducer } from "./kafka-client.ts";
import { isRefusal } from "./kafka-errors.ts";
import type { KafkaRecord } from "./kafka-envelope.ts";
import { partitionsOf, type DeclareTopics } from "./kafka-topics.ts";
import { mutexOf } from "./mutex.ts";

const PATIENCE_MS = 30_000;

/** Copies records to the topics of dead letters, as they were and with the reason. */
export class DeadLetters {
  readonly #producer: KafkaProducer;
  readonly #topicOf: (topic: string) => string;
  readonly #declare: DeclareTopics | undefined;
  #spread = 0;

  constructor(producer: KafkaProducer, topicOf: (topic: string) => string, declare: DeclareTopics | undefined) {
    this.#producer = producer;
    this.#topicOf = topicOf;
    this.#declare = declare;
  }

  /** Resolves when it is there for sure, in the first form that the topic takes. */
  async put(record: KafkaRecord, by: string, error: unknown, attempts: number): Promise<void> {
    const topic = this.#topicOf(record.topic);
    const count = await partitionsOf(topic, this.#producer, this.#declare);
    const forms = deadLetterForms(record, topic, count, this.#spread++, { by, error, attempts });
    const turn = await mutexOf(this.#producer).take(PATIENCE_MS);
    if (typeof turn === "symbol") throw new Error(`The producer of dead letters has been busy for ${PATIENCE_MS} ms`);
    try {
      for (const [i, form] of forms.entries()) {
        try {
          return await this.#send(form);
        } catch (refusal) {
          if (i === forms.length - 1 || !isRefusal(refusal)) throw refusal;
        }
      }
    } finally {
      turn.end();
    }
  }

  async #send(form: DeadLetterForm): Promise<void> {
    const how = { acks: -1, idempotent: true, autocreateTopics: false };
    for (const sending of form) await this.#producer.send({ ...sending, ...how });
  }
}
