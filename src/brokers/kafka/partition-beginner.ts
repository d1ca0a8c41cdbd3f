import type { Generation } from "./generation.ts";
import { type GroupOffsets, NO_EPOCH, type Place } from "./group-offsets.ts";
import type { KafkaConsumer } from "./kafka-client.ts";
import { partitionError } from "./kafka-errors.ts";
import { edgeOf, EARLIEST, LATEST } from "./log-edges.ts";
import { nameOf } from "./partition-fetcher.ts";
import { PartitionProgress } from "./partition-progress.ts";
import type { TopicWatch } from "./topic-watch.ts";
import type { Troubles } from "./troubles.ts";

export interface BeginSettings {
  readonly consumer: KafkaConsumer;
  readonly offsets: GroupOffsets;
  readonly watch: TopicWatch;
  readonly troubles: Troubles;
  /** Where a group begins that has committed nothing. */
  readonly from: "earliest" | "latest";
  /** Whether a partition was added while the group was reading: all it has is new. */
  readonly isNew: (topic: string, partition: number) => boolean;
  /** Before the group is asked what is committed for a partition. */
  open?: ((topic: string, partition: number) => Promise<void>) | undefined;
}

interface Partition {
  readonly topic: string;
  readonly partition: number;
}

/** Finds out where each partition of a generation is to be read from. Those that cannot be begun hold up no other. */
export class PartitionBeginner {
  readonly #settings: BeginSettings;
  readonly #generation: Generation;

  constructor(settings: BeginSettings, generation: Generation) {
    this.#settings = settings;
    this.#generation = generation;
  }

  /** Resolves when all are begun, or the generation ends. */
  async begin(): Promise<void> {
    const all = this.#generation.assigned.flatMap(({ topic, partitions }) =>
      partitions.map((partition) => ({ topic, partition })),
    );
    await this.#beginSome(all);
  }

  async #beginSome(partitions: readonly Partition[]): Promise<void> {
    if (this.#generation.ending.aborted || partitions.length === 0) return;
    const opened = await this.#each(partitions, (one) => this.#settings.open?.(one.topic, one.partition));
    if (opened.done.length > 0) {
      try {
        const topics = Map.groupBy(opened.done, ({ topic }) => topic);
        const places = await this.#settings.offsets.read(
          [...topics].map(([topic, some]) => ({ topic, partitions: some.map(({ partition }) => partition) })),
        );
        const begun = await this.#each(opened.done, (one) => this.#beginOne(one, places));
        opened.failed.push(...begun.failed);
      } catch (error) {
        opened.failed.push(...opened.done.map((one) => ({ one, error })));
      }
    }
    await Promise.all(opened.failed.map(({ one, error }) => this.#beginLater(one, error)));
  }

  async #beginLater(one: Partition, error: unknown): Promise<void> {
    await this.#settings.troubles.pause(`${one.topic}:${one.partition}`, error, this.#generation.ending);
    await this.#beginSome([one]);
  }

  async #each(partitions: readonly Partition[], run: (one: Partition) => Promise<void> | undefined) {
    const outcomes = await Promise.allSettled(partitions.map(async (one) => run(one)));
    const done: Partition[] = [];
    const failed: { one: Partition; error: unknown }[] = [];
    for (const [i, outcome] of outcomes.entries()) {
      const one = partitions[i]!;
      if (outcome.status === "fulfilled") done.push(one);
      else failed.push({ one, error: outcome.reason });
    }
    return { done, failed };
  }

  async #beginOne(one: Partition, places: ReadonlyMap<string, Place>): Promise<void> {
    const { watch, offsets, troubles } = this.#settings;
    const { topic, partition } = one;
    const name = `${topic}:${partition}`;
    const { id, error } = watch.of(topic) ?? {};
    if (id === undefined) {
      watch.doubt();
      throw error ?? partitionError(`the topic ${topic}`, "it is not known yet");
    }
    const known = places.get(name);
    const place = known === undefined ? await this.#first(one, id) : continued(known, id);
    const isKnown = known?.topicId === id && known.offset === place.offset;
    // What "latest" is changes, and an offset without the id of its topic may one day count for another topic.
    if (!isKnown && (known !== undefined || this.#settings.from === "latest")) {
      const code = (await offsets.commit([{ topic, partition, place }])).get(name);
      if (code !== undefined) throw partitionError(nameOf(one), code);
    }
    if (this.#generation.ending.aborted) return;
    this.#generation.partitions.set(name, new PartitionProgress(topic, partition, place));
    troubles.over(name);
  }

  /** Where a partition begins that nothing is committed for. */
  async #first({ topic, partition }: Partition, topicId: string): Promise<Place> {
    const { consumer, from, isNew } = this.#settings;
    const edge = from === "latest" && !isNew(topic, partition) ? LATEST : EARLIEST;
    return { offset: await edgeOf(consumer, topic, partition, edge), epoch: NO_EPOCH, topicId };
  }
}

/** An offset of another topic of that name says nothing of this one, so this one is read from its beginning. */
function continued(known: Place, topicId: string): Place {
  if (known.topicId === undefined || known.topicId === topicId) return { ...known, topicId };
  return { offset: 0n, epoch: NO_EPOCH, topicId };
}
