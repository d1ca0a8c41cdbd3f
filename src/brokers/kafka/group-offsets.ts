import { callBroker, type KafkaConsumer } from "./kafka-client.ts";
import { responseOf } from "./kafka-errors.ts";

/** A place in the log of a partition. */
export interface Place {
  /** Everything below is done. */
  readonly offset: bigint;
  /** The leader epoch of the last record below: by it a broker can tell whether that record is still there. */
  readonly epoch: number;
  /** The id of the topic: a topic that is made anew has another. Undefined when it is not known. */
  readonly topicId: string | undefined;
}

export const NO_EPOCH = -1;

export interface GroupOffset {
  readonly topic: string;
  readonly partition: number;
  readonly place: Place;
}

/** The transactional producer that writes offsets. */
export interface TransactionOwner {
  readonly transactionalId: string;
  readonly producerId: bigint | undefined;
  readonly producerEpoch: number | undefined;
}

/**
 * What a group has committed, with leader epoch and topic id. The client's own methods leave both out, so these requests
 * are made by its lower level. The id is in the metadata of the offset; tools and other consumers of the group write
 * none, and their offsets count for the topic as it is.
 */
export class GroupOffsets {
  readonly #consumer: KafkaConsumer;

  constructor(consumer: KafkaConsumer) {
    this.#consumer = consumer;
  }

  /** By `topic:partition`; what has no offset is not there. */
  async read(topics: readonly { topic: string; partitions: readonly number[] }[]): Promise<Map<string, Place>> {
    const { groupId, memberId } = this.#consumer;
    const asked = topics.map(({ topic, partitions }) => ({ name: topic, partitionIndexes: [...partitions] }));
    const group = { groupId, memberId, memberEpoch: -1, topics: asked };
    const response = (await this.#ask("OffsetFetch", [group], false)) as OffsetFetchResponse;
    const places = new Map<string, Place>();
    for (const { name, partitions } of response.groups?.[0]?.topics ?? response.topics ?? []) {
      for (const { partitionIndex, committedOffset, committedLeaderEpoch = NO_EPOCH, metadata } of partitions) {
        if (committedOffset < 0n) continue;
        const topicId = topicIdIn(metadata);
        places.set(`${name}:${partitionIndex}`, { offset: committedOffset, epoch: committedLeaderEpoch, topicId });
      }
    }
    return places;
  }

  /** Commits as a member of the group. Gives the codes of partitions that were refused for a reason of their own. */
  async commit(offsets: readonly GroupOffset[]): Promise<Map<string, number>> {
    const { groupId, generationId, memberId } = this.#consumer;
    if (memberId === null) throw new Error("not a member of the group");
    try {
      await this.#ask("OffsetCommit", groupId, generationId, memberId, null, byTopic(offsets));
      return new Map();
    } catch (error) {
      const refused = refusals(error);
      if (refused.size === 0 || [...refused.values()].some((code) => !OF_PARTITION.has(code))) throw error;
      return refused;
    }
  }

  /** The same as part of a transaction, which the group must have been added to. */
  async commitWithin(owner: TransactionOwner, offset: GroupOffset): Promise<void> {
    const { groupId, generationId, memberId } = this.#consumer;
    if (memberId === null) throw new Error("not a member of the group");
    const { transactionalId, producerId, producerEpoch } = owner;
    const to = [transactionalId, groupId, producerId, producerEpoch, generationId, memberId, null, byTopic([offset])];
    await this.#ask("TxnOffsetCommit", ...to);
  }

  async #ask(api: string, ...args: readonly unknown[]): Promise<unknown> {
    return callBroker(this.#consumer, await this.#consumer.findGroupCoordinator(), api, args);
  }
}

/** No such topic, metadata or offset too long, no right to the topic. Any other error is the group's. */
const OF_PARTITION = new Set([3, 12, 28, 29]);

interface OffsetFetchResponse {
  readonly groups?: readonly { readonly topics: readonly CommittedTopic[] }[];
  /** Up to version 7. */
  readonly topics?: readonly CommittedTopic[];
}

interface CommittedTopic {
  readonly name: string;
  readonly partitions: readonly {
    readonly partitionIndex: number;
    readonly committedOffset: bigint;
    readonly committedLeaderEpoch?: number;
    readonly metadata?: string | null;
  }[];
}

const MARK = "txbox topic ";

function topicIdIn(metadata: string | null | undefined): string | undefined {
  return metadata?.startsWith(MARK) === true ? metadata.slice(MARK.length) : undefined;
}

function byTopic(offsets: readonly GroupOffset[]): object[] {
  const topics = Map.groupBy(offsets, ({ topic }) => topic);
  return [...topics].map(([name, partitions]) => ({
    name,
    partitions: partitions.map(({ partition, place: { offset, epoch, topicId } }) => ({
      partitionIndex: partition,
      committedOffset: offset,
      committedLeaderEpoch: epoch,
      committedMetadata: topicId === undefined ? null : `${MARK}${topicId}`,
    })),
  }));
}

interface OffsetCommitResponse {
  readonly topics?: readonly {
    readonly name: string;
    readonly partitions: readonly { readonly partitionIndex: number; readonly errorCode: number }[];
  }[];
}

function refusals(error: unknown): Map<string, number> {
  const codes = new Map<string, number>();
  const response: OffsetCommitResponse | undefined = responseOf(error);
  for (const { name, partitions } of response?.topics ?? []) {
    for (const { partitionIndex, errorCode } of partitions) {
      if (errorCode !== 0) codes.set(`${name}:${partitionIndex}`, errorCode);
    }
  }
  return codes;
}
