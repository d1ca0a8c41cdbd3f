import type { Place } from "./group-offsets.ts";

/** A record that was taken and is not done. */
export interface Taken {
  readonly offset: bigint;
  /** Of the record before it. */
  readonly epochBelow: number;
}

/** How far a partition is read and done. Its offset may only be committed up to the first record that is not done. */
export class PartitionProgress {
  readonly topic: string;
  readonly partition: number;
  /** The log that this is about. */
  topicId: string | undefined;
  /** Where the next fetch begins. */
  next: bigint;
  /** Leader epoch of the last record below `next`. */
  epoch: number;
  /** What the group knows. */
  committed: Place;
  /** In order. */
  readonly #pending = new Set<Taken>();

  constructor(topic: string, partition: number, place: Place) {
    this.topic = topic;
    this.partition = partition;
    this.topicId = place.topicId;
    this.next = place.offset;
    this.epoch = place.epoch;
    this.committed = place;
  }

  get name(): string {
    return `${this.topic}:${this.partition}`;
  }

  take(offset: bigint, epoch: number): Taken {
    const taken = { offset, epochBelow: this.epoch };
    this.#pending.add(taken);
    this.readTo(offset + 1n, epoch);
    return taken;
  }

  /** Of no effect for a record of a log, or a part of it, that is no more. */
  done(taken: Taken): void {
    this.#pending.delete(taken);
  }

  readTo(next: bigint, epoch: number): void {
    this.next = next;
    this.epoch = epoch;
  }

  /** Reads on from another place, of the same log or another. What was taken from there on counts no more. */
  restart(place: Place): void {
    for (const taken of this.#pending) {
      if (taken.offset >= place.offset || place.topicId !== this.topicId) this.#pending.delete(taken);
    }
    this.topicId = place.topicId;
    this.readTo(place.offset, place.epoch);
  }

  /** Everything below is done. */
  get position(): Place {
    const { topicId } = this;
    for (const { offset, epochBelow } of this.#pending) return { offset, epoch: epochBelow, topicId };
    return { offset: this.next, epoch: this.epoch, topicId };
  }

  /** Whether the group knows it otherwise: less of it, or more after the log was cut. */
  get isToCommit(): boolean {
    const { offset, topicId } = this.position;
    return offset !== this.committed.offset || topicId !== this.committed.topicId;
  }
}
