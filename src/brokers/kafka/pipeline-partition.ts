import { backoffMs } from "../../core/backoff.ts";
import { describeError } from "../../core/errors.ts";
import type { CommittedRecords } from "./committed-records.ts";
import type { Generation } from "./generation.ts";
import type { KafkaConsumer, KafkaTransactionalProducer } from "./kafka-client.ts";
import { explain, hasApiError } from "./kafka-errors.ts";
import type { PartitionProgress } from "./partition-progress.ts";
import { PartitionWorker, type WorkerHooks } from "./partition-worker.ts";
import { TransactionalWriter } from "./transactional-writer.ts";

export interface PartitionSettings {
  readonly consumer: KafkaConsumer;
  readonly generation: Generation;
  readonly producer: () => KafkaTransactionalProducer;
  readonly worker: Omit<WorkerHooks, "write" | "reset">;
  /** Resolves when the group next confirms that this process is a member. */
  readonly confirmed: (signal: AbortSignal) => Promise<void>;
}

const BACKOFF = { baseMs: 100, maxMs: 5000 };

/** One partition of a pipeline, with the writer that nobody else can be while it is ours. */
export class PipelinePartition {
  readonly #settings: PartitionSettings;
  readonly #worker: PartitionWorker;
  #writer: TransactionalWriter | undefined;
  #progress: PartitionProgress | undefined;
  #resetting = false;

  constructor(name: string, settings: PartitionSettings) {
    this.#settings = settings;
    const { generation, worker } = settings;
    this.#worker = new PartitionWorker(
      {
        ...worker,
        write: async (records, { topic, partition, offset }) => {
          if (this.#writer === undefined || generation.lost.aborted) throw new Error(`${name} is another's`);
          await this.#writer.write(records, { topic, partition, offset });
        },
        reset: (error) => this.#reset(error),
      },
      generation.ending,
      generation.lost,
    );
  }

  get idle(): Promise<void> {
    return this.#worker.idle;
  }

  async open(): Promise<void> {
    const writer = new TransactionalWriter(this.#settings.producer(), this.#settings.consumer);
    try {
      await writer.open();
    } catch (error) {
      await writer.close();
      throw error;
    }
    this.#writer = writer;
  }

  /** False when they come from where it is read no more. */
  push({ records, next }: CommittedRecords, from: bigint, progress: PartitionProgress): boolean {
    if (this.#resetting || progress.next !== from) return false;
    this.#progress = progress;
    progress.next = next;
    this.#worker.push(records);
    return true;
  }

  async close(): Promise<void> {
    this.#worker.clear();
    await this.#worker.idle;
    const writer = this.#writer;
    this.#writer = undefined;
    await writer?.close();
  }

  /** Whether the last transaction is committed is for the group to say; it can once that is over for sure. */
  async #reset(cause: unknown): Promise<void> {
    const { generation, worker } = this.#settings;
    const { settings, group: consumer } = worker;
    this.#resetting = true;
    let error = cause;
    for (let attempt = 1; this.#resetting && !generation.ending.aborted; attempt++) {
      const delayMs = Math.max(20, backoffMs(attempt, BACKOFF));
      settings.emit({ type: "outage", consumer, error: describeError(explain(error)), attempt, delayMs });
      await settings.clock.sleep(delayMs, generation.ending);
      try {
        await this.#beginAfresh(error);
        this.#resetting = false;
        settings.emit({ type: "recovered", consumer });
      } catch (next) {
        error = next;
      }
    }
  }

  async #beginAfresh(error: unknown): Promise<void> {
    const { generation, confirmed } = this.#settings;
    const writer = this.#writer;
    this.#writer = undefined;
    await writer?.close();
    // Who was fenced must not fence in turn, unless the group still counts it among its members.
    if (hasApiError(error, "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")) await confirmed(generation.ending);
    if (generation.ending.aborted) return;
    await this.open();
    await this.#rewind();
  }

  async #rewind(): Promise<void> {
    const { consumer } = this.#settings;
    const progress = this.#progress!;
    const { topic, partition } = progress;
    const committed = await consumer.listCommittedOffsets({ topics: [{ topic, partitions: [partition] }] });
    const offset = committed.get(topic)?.[partition] ?? -1n;
    progress.next = offset >= 0n ? offset : progress.committed;
  }
}
