import { settledWithin } from "../../../adapter/index.ts";
import { GroupOffsets, type GroupOffset } from "../group-offsets.ts";
import type { KafkaConsumer, KafkaRecords, KafkaTransaction, KafkaTransactionalProducer } from "../kafka-client.ts";

/** "I am new": without it the client asks for a producer id that is another's, and is refused as a zombie. */
const NEW_PRODUCER = { producerId: -1n, producerEpoch: -1 };
const ABORT_MS = 2000;

/** The one writer of a partition's results: outputs and the offset of their input become visible together or not at all. */
export class TransactionalWriter {
  readonly #producer: KafkaTransactionalProducer;
  readonly #transactionalId: string;
  readonly #consumer: KafkaConsumer;
  readonly #offsets: GroupOffsets;

  constructor(producer: KafkaTransactionalProducer, transactionalId: string, consumer: KafkaConsumer) {
    this.#producer = producer;
    this.#transactionalId = transactionalId;
    this.#consumer = consumer;
    this.#offsets = new GroupOffsets(consumer);
  }

  /** Fences the process that wrote for this partition before; its open transaction is over when this resolves. */
  async open(): Promise<void> {
    const transaction = await this.#producer.beginTransaction(NEW_PRODUCER);
    // Nothing was sent: there is nothing to end on the broker.
    await transaction.cancel();
  }

  /** Rejects when it is not known to be committed; this writer is of no use then. */
  async write(sendings: readonly KafkaRecords[], done: GroupOffset): Promise<void> {
    if (this.#consumer.memberId === null) throw new Error("not a member of the group");
    const transaction = await this.#producer.beginTransaction(NEW_PRODUCER);
    try {
      for (const sending of sendings) await transaction.send({ ...sending, acks: -1 });
      await transaction.addConsumer(this.#consumer as never);
      const { producerId, producerEpoch } = this.#producer;
      await this.#offsets.commitWithin({ transactionalId: this.#transactionalId, producerId, producerEpoch }, done);
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
  await settledWithin(transaction.abort(), ABORT_MS).catch(() => undefined);
}
