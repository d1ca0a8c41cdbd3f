import type {
  KafkaConsumer,
  KafkaOffset,
  KafkaRecordToSend,
  KafkaTransaction,
  KafkaTransactionalProducer,
} from "./kafka-client.ts";
import { settledWithin } from "./turns.ts";

/** "I am new": without it the client asks for a producer id that is another's, and is refused as a zombie. */
const NEW_PRODUCER = { producerId: -1n, producerEpoch: -1 };
const ABORT_MS = 2000;

/** The one writer of a partition's results: outputs and the offset of their input become visible together or not at all. */
export class TransactionalWriter {
  readonly #producer: KafkaTransactionalProducer;
  readonly #consumer: KafkaConsumer;

  constructor(producer: KafkaTransactionalProducer, consumer: KafkaConsumer) {
    this.#producer = producer;
    this.#consumer = consumer;
  }

  /** Fences whoever wrote for this partition before; its open transaction is over when this resolves. */
  async open(): Promise<void> {
    const transaction = await this.#producer.beginTransaction(NEW_PRODUCER);
    // Nothing was sent: there is nothing to end on the broker.
    await transaction.cancel();
  }

  /** Rejects when it is not known to be committed; this writer is of no use then. */
  async write(records: KafkaRecordToSend[], done: Omit<KafkaOffset, "metadata">): Promise<void> {
    const { groupId, generationId, memberId } = this.#consumer;
    if (memberId === null) throw new Error("not a member of the group");
    const transaction = await this.#producer.beginTransaction(NEW_PRODUCER);
    try {
      if (records.length > 0) await transaction.send({ messages: records, acks: -1 });
      await transaction.addConsumer(this.#consumer as never);
      const coordinatorId = await this.#consumer.findGroupCoordinator();
      const offset: KafkaOffset = {
        ...done,
        metadata: { consumer: { groupId, generationId, memberId, coordinatorId } },
      };
      await transaction.addOffset(offset as never);
      await transaction.commit();
    } catch (error) {
      await giveUp(transaction);
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#producer.close().catch(() => undefined);
  }
}

/** Others wait for an open transaction. Should it be committed after all, the broker refuses this, and rightly. */
async function giveUp(transaction: KafkaTransaction): Promise<void> {
  await settledWithin(transaction.abort(), ABORT_MS, new AbortController().signal).catch(() => undefined);
}
