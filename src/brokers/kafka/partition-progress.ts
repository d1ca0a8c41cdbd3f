/** How far a partition is read and done. Its offset may only be committed up to the first record that is not done. */
export class PartitionProgress {
  readonly topic: string;
  readonly partition: number;
  /** Where the next fetch begins. */
  next: bigint;
  /** What the group knows. */
  committed: bigint;
  /** Taken and not done, in order. */
  readonly #pending = new Set<bigint>();

  constructor(topic: string, partition: number, position: bigint) {
    this.topic = topic;
    this.partition = partition;
    this.next = position;
    this.committed = position;
  }

  take(offset: bigint): void {
    this.#pending.add(offset);
    this.next = offset + 1n;
  }

  done(offset: bigint): void {
    this.#pending.delete(offset);
  }

  /** Everything below is done. */
  get position(): bigint {
    for (const first of this.#pending) return first;
    return this.next;
  }
}
