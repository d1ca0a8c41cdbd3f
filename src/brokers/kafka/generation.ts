import type { KafkaAssignment } from "./kafka-client.ts";
import type { PartitionProgress } from "./partition-progress.ts";

/** One assignment of partitions, from a join of the group to the next. */
export class Generation {
  readonly assigned: readonly KafkaAssignment[];
  /** By `topic:partition`; filled when it is known where to begin. */
  readonly partitions: Map<string, PartitionProgress> = new Map();
  /** Settles when nothing is read any more. */
  running: Promise<void> = Promise.resolve();
  readonly #ending = new AbortController();
  readonly #lost = new AbortController();

  constructor(assignments: readonly KafkaAssignment[] | null) {
    this.assigned = (assignments ?? []).filter(({ partitions }) => partitions.length > 0);
  }

  /** Aborts when others will soon have the partitions: begin nothing more. */
  get ending(): AbortSignal {
    return this.#ending.signal;
  }

  /** Aborts when others may have them. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  end(): void {
    this.#ending.abort();
  }

  abandon(): void {
    this.#ending.abort();
    this.#lost.abort();
  }
}
