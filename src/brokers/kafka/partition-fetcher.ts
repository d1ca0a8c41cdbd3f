import type { Clock } from "../../core/contracts.ts";
import { UnavailableError } from "../../core/errors.ts";
import { type CommittedRecords, committedRecords } from "./committed-records.ts";
import type { Generation } from "./generation.ts";
import { NO_EPOCH, type Place } from "./group-offsets.ts";
import type { FetchedPartition, KafkaConsumer, KafkaFetchResponse } from "./kafka-client.ts";
import { hasApiError, isUnreadable, partitionError, responseOf } from "./kafka-errors.ts";
import { edgeOf, EARLIEST, LATEST } from "./log-edges.ts";
import type { PartitionProgress } from "./partition-progress.ts";
import type { TopicWatch } from "./topic-watch.ts";
import type { Troubles } from "./troubles.ts";

export interface FetchSettings {
  readonly consumer: KafkaConsumer;
  /** What one answer may bring at most; a larger batch still comes whole. */
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly watch: TopicWatch;
  readonly troubles: Troubles;
}

export interface FetchHooks {
  /**
   * Records of one partition, in order; resolves when there is room for more. It moves the progress as it takes them, and
   * to `next` with the last. False: some were left, and must be fetched again.
   */
  take(fetched: CommittedRecords, progress: PartitionProgress, generation: Generation): Promise<boolean>;
  /** Moves the progress to another place in the log, or to another log, and has the group know. */
  restart(progress: PartitionProgress, place: Place, generation: Generation): Promise<void>;
}

const READ_COMMITTED = 1;
/** Commits and heartbeats share the connection: they wait for a fetch that has nothing to bring. */
const MAX_WAIT_MS = 200;
/** What could not be taken just now is not asked for again at once. */
const LEFT_MS = 50;
const PARTITION_BYTES = 1_048_576;
const RESPONSE_BYTES = 8 * PARTITION_BYTES;

const OUT_OF_RANGE = 1;
/** The next request begins a new session; nothing is wrong. */
const SESSION_ENDED = ["FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "FETCH_SESSION_TOPIC_ID_ERROR"];

/** What a partition was asked for; it may have moved when the answer comes. */
interface Asked {
  readonly progress: PartitionProgress;
  readonly topicId: string;
  readonly next: bigint;
  readonly epoch: number;
}

/**
 * Reads the partitions of one generation until it ends. One in trouble is left out of the requests for a while, told of
 * by its name and tried again; the others go on.
 */
export class PartitionFetcher {
  readonly #settings: FetchSettings;
  readonly #hooks: FetchHooks;
  readonly #generation: Generation;
  /** By broker. */
  readonly #loops = new Map<number, Promise<void>>();
  /** Partitions that are not asked for before this time. */
  readonly #held = new Map<PartitionProgress, number>();
  /** Offsets that one answer has called out of range, though they are not. */
  readonly #doubted = new Map<PartitionProgress, bigint>();
  readonly #restarts = new Set<Promise<void>>();

  constructor(settings: FetchSettings, hooks: FetchHooks, generation: Generation) {
    this.#settings = settings;
    this.#hooks = hooks;
    this.#generation = generation;
  }

  /** Every broker that leads one of the partitions is asked for its records, one request at a time. Called on a timer. */
  tend(): void {
    const { watch } = this.#settings;
    if (this.#generation.ending.aborted) return;
    for (const progress of this.#generation.partitions.values()) {
      if (!this.#isWell(progress)) continue;
      const node = watch.leaderOf(progress.topic, progress.partition)!;
      if (!this.#loops.has(node)) this.#loops.set(node, this.#fetchFrom(node));
    }
  }

  /** Settles when nothing is read any more. */
  async ended(): Promise<void> {
    const { ending } = this.#generation;
    if (!ending.aborted) await new Promise((resolve) => ending.addEventListener("abort", resolve, { once: true }));
    await Promise.all([...this.#loops.values(), ...this.#restarts]);
  }

  /** Whether its topic is there, is the one that is being read, and has a leader for it. */
  #isWell(progress: PartitionProgress): boolean {
    const { watch } = this.#settings;
    const { topic, partition } = progress;
    const topicId = watch.of(topic)?.id;
    if (topicId === undefined || this.#held.get(progress) === Number.POSITIVE_INFINITY) return false;
    if (topicId === progress.topicId) return watch.leaderOf(topic, partition) !== undefined;
    const place = { offset: 0n, epoch: NO_EPOCH, topicId };
    this.#restart(progress, place, "the topic was made anew and is read from its beginning");
    return false;
  }

  async #fetchFrom(node: number): Promise<void> {
    const { clock, watch, troubles } = this.#settings;
    const { ending } = this.#generation;
    const trouble = `broker ${node}`;
    while (!ending.aborted) {
      const asked = this.#partitionsAt(node);
      if (asked.length === 0) {
        // Another broker leads them now, or none does.
        troubles.over(trouble);
        await clock.sleep(MAX_WAIT_MS / 4, ending);
        continue;
      }
      try {
        const response = await this.#fetch(node, asked);
        troubles.over(trouble);
        if (!(await this.#take(response, asked))) await clock.sleep(LEFT_MS, ending);
      } catch (error) {
        if (hasApiError(error, ...SESSION_ENDED)) {
          await clock.sleep(LEFT_MS, ending);
          continue;
        }
        watch.doubt();
        if (isUnreadable(error)) await this.#oneByOne(node, asked);
        else await troubles.pause(trouble, error, ending);
      }
    }
  }

  /**
   * Something in an answer cannot be read, and with it nothing else of the answer: each partition asked for alone shows
   * which one it is.
   */
  async #oneByOne(node: number, all: readonly Asked[]): Promise<void> {
    for (const asked of all) {
      if (this.#generation.ending.aborted) return;
      for (let again = true; again;) {
        again = false;
        try {
          await this.#take(await this.#fetch(node, [asked]), [asked]);
        } catch (error) {
          again = hasApiError(error, ...SESSION_ENDED);
          if (!again) this.#hold(asked.progress, unreadable(asked.progress, error));
        }
      }
    }
  }

  #partitionsAt(node: number): Asked[] {
    const { watch, clock } = this.#settings;
    const now = clock.monotonic();
    const all: Asked[] = [];
    for (const progress of this.#generation.partitions.values()) {
      const { topic, partition, topicId, next, epoch } = progress;
      if (topicId === undefined || topicId !== watch.of(topic)?.id) continue;
      if (watch.leaderOf(topic, partition) !== node || (this.#held.get(progress) ?? 0) > now) continue;
      all.push({ progress, topicId, next, epoch });
    }
    return all;
  }

  async #fetch(node: number, asked: readonly Asked[]): Promise<KafkaFetchResponse> {
    const topics = [...Map.groupBy(asked, ({ topicId }) => topicId)].map(([topicId, some]) => ({
      topicId,
      partitions: some.map(({ progress: { partition }, next, epoch }) => ({
        partition,
        currentLeaderEpoch: NO_EPOCH,
        fetchOffset: next,
        lastFetchedEpoch: epoch,
        partitionMaxBytes: Math.min(this.#settings.maxBytes, PARTITION_BYTES),
      })),
    }));
    try {
      return await this.#settings.consumer.fetch({
        node,
        topics,
        maxWaitTime: MAX_WAIT_MS,
        minBytes: 1,
        maxBytes: Math.min(this.#settings.maxBytes, RESPONSE_BYTES),
        isolationLevel: READ_COMMITTED,
      });
    } catch (error) {
      // A part of it is an error; the rest is as good as ever.
      const response: Partial<KafkaFetchResponse> | undefined = responseOf(error);
      if (response?.responses === undefined || response.responses.length === 0) throw error;
      return { responses: response.responses };
    }
  }

  async #take(response: KafkaFetchResponse, request: readonly Asked[]): Promise<boolean> {
    const asked = new Map(request.map((one) => [`${one.topicId}:${one.progress.partition}`, one]));
    let tookAll = true;
    for (const { topicId, partitions } of response.responses) {
      for (const fetched of partitions) {
        const one = asked.get(`${topicId}:${fetched.partitionIndex}`);
        if (one === undefined || this.#generation.ending.aborted) continue;
        const { progress } = one;
        // It is read from elsewhere by now: what came would leave a gap.
        if (progress.next !== one.next || progress.topicId !== topicId) continue;
        if (!(await this.#takeFrom(fetched, one))) tookAll = false;
      }
    }
    return tookAll;
  }

  async #takeFrom(fetched: FetchedPartition, asked: Asked): Promise<boolean> {
    const { watch, troubles } = this.#settings;
    const { progress, topicId, next, epoch } = asked;
    const { errorCode, divergingEpoch: cut } = fetched;
    if (errorCode === OUT_OF_RANGE) {
      await this.#outOfRange(progress);
      return true;
    }
    if (errorCode !== 0) {
      watch.doubt();
      this.#hold(progress, partitionError(nameOf(progress), errorCode));
      return true;
    }
    this.#held.delete(progress);
    this.#doubted.delete(progress);
    troubles.over(progress.name);
    if (cut !== undefined && cut.endOffset >= 0n) {
      const place = { offset: cut.endOffset < next ? cut.endOffset : next, epoch: cut.epoch, topicId };
      this.#restart(progress, place, `the log was cut; it is read on from offset ${place.offset}`);
      return true;
    }
    const records = committedRecords({ topic: progress.topic, topicId, next, epoch }, fetched);
    return this.#hooks.take(records, progress, this.#generation);
  }

  /** What was to be read next is gone: expired, or cut off with the end of the log. Nothing that is there may be skipped. */
  async #outOfRange(progress: PartitionProgress): Promise<void> {
    const { consumer } = this.#settings;
    const { topic, partition, next, topicId } = progress;
    try {
      const start = await edgeOf(consumer, topic, partition, EARLIEST);
      const end = await edgeOf(consumer, topic, partition, LATEST);
      // A replica that is behind says so too, but not its leader the next time.
      if (next >= start && next <= end && this.#doubted.get(progress) !== next) {
        this.#doubted.set(progress, next);
        return;
      }
      const what = `offset ${next} is not there (${start} to ${end} are); it is read from its beginning`;
      this.#restart(progress, { offset: start, epoch: NO_EPOCH, topicId }, what);
    } catch (error) {
      this.#hold(progress, error);
    }
  }

  #restart(progress: PartitionProgress, place: Place, why: string): void {
    const { troubles } = this.#settings;
    this.#held.set(progress, Number.POSITIVE_INFINITY);
    troubles.report(progress.name, partitionError(nameOf(progress), why));
    const restart = this.#restartUntilDone(progress, place).finally(() => this.#restarts.delete(restart));
    this.#restarts.add(restart);
  }

  async #restartUntilDone(progress: PartitionProgress, place: Place): Promise<void> {
    const { troubles } = this.#settings;
    const { ending } = this.#generation;
    while (!ending.aborted) {
      try {
        await this.#hooks.restart(progress, place, this.#generation);
        break;
      } catch (error) {
        await troubles.pause(progress.name, error, ending);
      }
    }
    this.#held.delete(progress);
    this.#doubted.delete(progress);
  }

  #hold(progress: PartitionProgress, error: unknown): void {
    const { troubles, clock } = this.#settings;
    this.#held.set(progress, clock.monotonic() + troubles.report(progress.name, error));
  }
}

function unreadable(progress: PartitionProgress, cause: unknown): UnavailableError {
  const what = `Kafka, ${nameOf(progress)}: what is stored from offset ${progress.next} on cannot be read`;
  return new UnavailableError(what, { cause });
}

/** As people say it. */
export function nameOf({ topic, partition }: { topic: string; partition: number }): string {
  return `${topic}, partition ${partition}`;
}
