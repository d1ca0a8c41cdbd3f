import { SubscriberOutage } from "../../../adapter/index.ts";
import type { CommittedRecords } from "../committed-records.ts";
import type { Generation } from "../generation.ts";
import { GroupOffsets, type Place } from "../group-offsets.ts";
import type { KafkaConsumer, KafkaTransactionalProducer } from "../kafka-client.ts";
import { explain, hasApiError, partitionError } from "../kafka-errors.ts";
import { nameOf } from "../partition-fetcher.ts";
import type { PartitionProgress } from "../partition-progress.ts";
import { PartitionWorker, type WorkerHooks } from "./partition-worker.ts";
import { TransactionalWriter } from "./transactional-writer.ts";

export interface PartitionSettings {
  readonly consumer: KafkaConsumer;
  readonly generation: Generation;
  readonly topic: string;
  readonly partition: number;
  readonly transactionalId: string;
  readonly producer: (transactionalId: string) => KafkaTransactionalProducer;
  readonly worker: Omit<WorkerHooks, "write" | "reset">;
  /** Resolves when the group next confirms that this process is a member. */
  readonly confirmed: (signal: AbortSignal) => Promise<void>;
}

const BACKOFF = { baseMs: 100, maxMs: 5000 };

/** One partition of a pipeline, with its writer: no other process can write while the partition is ours. */
export class PipelinePartition {
  readonly #settings: PartitionSettings;
  readonly #offsets: GroupOffsets;
  readonly #worker: PartitionWorker;
  #writer: TransactionalWriter | undefined;
  #progress: PartitionProgress | undefined;
  #resetting = false;
  #restarting = false;

  constructor(settings: PartitionSettings) {
    this.#settings = settings;
    this.#offsets = new GroupOffsets(settings.consumer);
    const { generation, worker } = settings;
    this.#worker = new PartitionWorker(
      {
        ...worker,
        write: async (sendings, { topic, partition, offset, epoch, topicId }) => {
          if (this.#writer === undefined || generation.lost.aborted)
            throw new Error(`${nameOf(settings)} is another's`);
          const place = { offset: offset + 1n, epoch, topicId };
          await this.#writer.write(sendings, { topic, partition, place });
          if (this.#progress !== undefined) this.#progress.committed = place;
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
    const { producer, consumer, transactionalId } = this.#settings;
    const writer = new TransactionalWriter(producer(transactionalId), transactionalId, consumer);
    try {
      await writer.open();
    } catch (error) {
      await writer.close();
      throw error;
    }
    await this.#writer?.close();
    this.#writer = writer;
  }

  /** False when they come from where it is read no more. */
  push({ records, next, epoch }: CommittedRecords, from: Place, progress: PartitionProgress): boolean {
    if (this.#resetting || this.#restarting) return false;
    if (progress.next !== from.offset || progress.topicId !== from.topicId) return false;
    this.#progress = progress;
    progress.readTo(next, epoch);
    this.#worker.push(records);
    return true;
  }

  /** Drops what is queued and reads on from another place, which the group knows of first. */
  async restart(progress: PartitionProgress, place: Place): Promise<void> {
    this.#restarting = true;
    try {
      this.#worker.clear();
      await this.#worker.idle;
      const { topic, partition, name } = progress;
      const code = (await this.#offsets.commit([{ topic, partition, place }])).get(name);
      if (code !== undefined) throw partitionError(nameOf(progress), code);
      progress.restart(place);
      progress.committed = place;
    } finally {
      this.#restarting = false;
    }
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
    const outage = new SubscriberOutage(consumer, settings, BACKOFF);
    let error = cause;
    while (this.#resetting && !generation.ending.aborted) {
      await outage.waitOut(explain(error, nameOf(this.#settings)), generation.ending);
      try {
        await this.#beginAfresh(error);
        this.#resetting = false;
        outage.over();
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
    // After another process has fenced this one, it must not fence that process in turn, unless the group still counts
    // it as a member.
    if (hasApiError(error, "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")) await confirmed(generation.ending);
    if (generation.ending.aborted) return;
    await this.open();
    await this.#rewind();
  }

  async #rewind(): Promise<void> {
    const progress = this.#progress!;
    const { topic, partition, topicId, name } = progress;
    const known = (await this.#offsets.read([{ topic, partitions: [partition] }])).get(name);
    // An offset of another topic of that name says nothing; the fetcher will see that this one is gone.
    const isOfThis = known !== undefined && (known.topicId ?? topicId) === topicId;
    progress.restart(isOfThis ? { ...known, topicId } : progress.committed);
  }
}
