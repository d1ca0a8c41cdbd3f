import { backoffMs } from "../../core/backoff.ts";
import type { Clock } from "../../core/contracts.ts";
import { type CommittedRecords, committedRecords } from "./committed-records.ts";
import type { Generation } from "./generation.ts";
import type { KafkaConsumer, KafkaFetchOptions, KafkaFetchResponse, KafkaMetadata } from "./kafka-client.ts";
import { hasApiError } from "./kafka-errors.ts";
import { NO_EPOCH } from "./offset-commits.ts";
import { PartitionProgress } from "./partition-progress.ts";

export interface FetchSettings {
  readonly consumer: KafkaConsumer;
  readonly topics: readonly string[];
  /** Where a group begins that has committed nothing. */
  readonly from: "earliest" | "latest";
  /** What one answer may bring at most; a batch that is larger comes all the same. */
  readonly maxBytes: number;
  readonly clock: Clock;
}

export interface FetchHooks {
  /**
   * Records of one partition, in order; resolves when there is room for more. It moves the progress as it takes them, and
   * to `next` with the last. False: some were left, and must be fetched again.
   */
  take(fetched: CommittedRecords, progress: PartitionProgress, generation: Generation): Promise<boolean>;
  outage(error: unknown, attempt: number, delayMs: number): void;
  recovered(): void;
}

const BACKOFF = { baseMs: 100, maxMs: 5000 };
const EARLIEST = -2n;
const LATEST = -1n;
const READ_COMMITTED = 1;
/** Commits and heartbeats share the connection: they wait for a fetch that has nothing to bring. */
const MAX_WAIT_MS = 200;
/** What could not be taken just now is not asked for again at once. */
const LEFT_MS = 50;
const PARTITION_BYTES = 1_048_576;
const RESPONSE_BYTES = 8 * PARTITION_BYTES;

/** Waits after a failure; the more of them in a row, the longer. */
export async function pauseAfter(
  error: unknown,
  attempt: number,
  until: AbortSignal,
  clock: Clock,
  hooks: Pick<FetchHooks, "outage">,
): Promise<void> {
  if (until.aborted) return;
  const delayMs = Math.max(20, backoffMs(attempt, BACKOFF));
  hooks.outage(error, attempt, delayMs);
  await clock.sleep(delayMs, until);
}

/** Reads the partitions of one generation, from what the group has committed, until it ends. */
export class PartitionFetcher {
  readonly #settings: FetchSettings;
  readonly #hooks: FetchHooks;
  readonly #generation: Generation;
  /** By broker. */
  readonly #loops = new Map<number, Promise<void>>();

  constructor(settings: FetchSettings, hooks: FetchHooks, generation: Generation) {
    this.#settings = settings;
    this.#hooks = hooks;
    this.#generation = generation;
  }

  /** Where each partition is to be read from. */
  async positions(): Promise<PartitionProgress[]> {
    const { consumer, from } = this.#settings;
    const topics = this.#generation.assigned.map(({ topic, partitions }) => ({ topic, partitions: [...partitions] }));
    if (topics.length === 0) return [];
    const committed = await consumer.listCommittedOffsets({ topics });
    const all: PartitionProgress[] = [];
    for (const { topic, partitions } of topics) {
      const known = (partition: number): bigint => committed.get(topic)?.[partition] ?? -1n;
      const fresh = partitions.filter((partition) => known(partition) < 0n);
      const starts = await this.#edges(topic, fresh, from === "earliest" ? EARLIEST : LATEST);
      if (from === "latest") await this.#remember(topic, starts);
      for (const partition of partitions) {
        all.push(new PartitionProgress(topic, partition, starts.get(partition) ?? known(partition)));
      }
    }
    return all;
  }

  async run(): Promise<void> {
    const { ending, partitions } = this.#generation;
    for (let attempt = 1; !ending.aborted && partitions.size > 0; attempt++) {
      try {
        this.#follow(await this.#metadata());
        break;
      } catch (error) {
        await this.#pause(error, attempt);
      }
    }
    if (!ending.aborted) await new Promise((resolve) => ending.addEventListener("abort", resolve, { once: true }));
    await Promise.all(this.#loops.values());
  }

  /** Every broker that leads one of the partitions is asked for its records, one request at a time. */
  #follow(metadata: KafkaMetadata): void {
    for (const { topic, partition } of this.#generation.partitions.values()) {
      const node = leaderOf(metadata, topic, partition);
      if (node !== undefined && !this.#loops.has(node)) this.#loops.set(node, this.#fetchFrom(node));
    }
  }

  async #fetchFrom(node: number): Promise<void> {
    const { consumer, clock, maxBytes } = this.#settings;
    const { ending } = this.#generation;
    for (let failures = 0; !ending.aborted;) {
      try {
        const metadata = await this.#metadata();
        this.#follow(metadata);
        const topics = this.#request(node, metadata);
        if (topics.length === 0) {
          // Another broker leads them now, or none does.
          await clock.sleep(MAX_WAIT_MS, ending);
          continue;
        }
        const response = await consumer.fetch({
          node,
          topics,
          maxWaitTime: MAX_WAIT_MS,
          minBytes: 1,
          maxBytes: Math.min(maxBytes, RESPONSE_BYTES),
          isolationLevel: READ_COMMITTED,
        });
        failures = 0;
        this.#hooks.recovered();
        if (!(await this.#take(response, topics, metadata))) await clock.sleep(LEFT_MS, ending);
      } catch (error) {
        if (hasApiError(error, "OFFSET_OUT_OF_RANGE")) await this.#reset();
        await this.#pause(error, ++failures);
      }
    }
  }

  #request(node: number, metadata: KafkaMetadata): KafkaFetchOptions["topics"] {
    const topics = new Map<string, KafkaFetchOptions["topics"][number]>();
    for (const { topic, partition, next } of this.#generation.partitions.values()) {
      if (leaderOf(metadata, topic, partition) !== node) continue;
      const topicId = metadata.topics.get(topic)!.id;
      const entry = topics.get(topicId) ?? { topicId, partitions: [] };
      topics.set(topicId, entry);
      entry.partitions.push({
        partition,
        currentLeaderEpoch: -1,
        fetchOffset: next,
        lastFetchedEpoch: -1,
        partitionMaxBytes: Math.min(this.#settings.maxBytes, PARTITION_BYTES),
      });
    }
    return [...topics.values()];
  }

  async #take(
    response: KafkaFetchResponse,
    request: KafkaFetchOptions["topics"],
    metadata: KafkaMetadata,
  ): Promise<boolean> {
    const { partitions: mine, ending } = this.#generation;
    const asked = new Map(
      request.flatMap(({ topicId, partitions }) =>
        partitions.map(({ partition, fetchOffset }) => [`${topicId}:${partition}`, fetchOffset]),
      ),
    );
    const names = new Map([...metadata.topics].map(([name, { id }]) => [id, name]));
    for (const { topicId, partitions } of response.responses) {
      const topic = names.get(topicId) ?? topicId;
      for (const fetched of partitions) {
        const progress = mine.get(`${topic}:${fetched.partitionIndex}`);
        if (progress === undefined || ending.aborted) continue;
        // It is read from elsewhere by now, or was not asked for: what came would leave a gap.
        if (progress.next !== asked.get(`${topicId}:${fetched.partitionIndex}`)) continue;
        const committed = committedRecords(topic, fetched, progress.next);
        if (!(await this.#hooks.take(committed, progress, this.#generation))) return false;
      }
    }
    return true;
  }

  /** A position is gone: expired, or the log was cut. Nothing may be skipped, so it is read from its beginning. */
  async #reset(): Promise<void> {
    try {
      for (const progress of this.#generation.partitions.values()) {
        const { topic, partition } = progress;
        const start = (await this.#edges(topic, [partition], EARLIEST)).get(partition)!;
        const end = (await this.#edges(topic, [partition], LATEST)).get(partition)!;
        if (progress.next < start || progress.next > end) progress.next = start;
      }
    } catch {
      // The next fetch says so again.
    }
  }

  async #edges(topic: string, partitions: number[], timestamp: bigint): Promise<Map<number, bigint>> {
    if (partitions.length === 0) return new Map();
    const { consumer } = this.#settings;
    const offsets = await consumer.listOffsets({ topics: [topic], partitions: { [topic]: partitions }, timestamp });
    return new Map(partitions.map((partition) => [partition, offsets.get(topic)?.[partition] ?? 0n]));
  }

  /** The latest is later the next time one asks: what comes until then would be skipped by whoever begins after this. */
  async #remember(topic: string, starts: ReadonlyMap<number, bigint>): Promise<void> {
    if (starts.size === 0) return;
    const offsets = [...starts].map(([partition, offset]) => ({ topic, partition, offset, leaderEpoch: NO_EPOCH }));
    await this.#settings.consumer.commit({ offsets });
  }

  #metadata(): Promise<KafkaMetadata> {
    const { consumer, topics } = this.#settings;
    return consumer.metadata({ topics: [...topics], autocreateTopics: false });
  }

  #pause(error: unknown, attempt: number): Promise<void> {
    return pauseAfter(error, attempt, this.#generation.ending, this.#settings.clock, this.#hooks);
  }
}

function leaderOf(metadata: KafkaMetadata, topic: string, partition: number): number | undefined {
  const leader = metadata.topics.get(topic)?.partitions[partition]?.leader;
  return leader === undefined || leader < 0 ? undefined : leader;
}
