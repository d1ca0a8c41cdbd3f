import type { Generation } from "./generation.ts";
import type { GroupOffsets } from "./group-offsets.ts";
import { hasApiError, partitionError } from "./kafka-errors.ts";
import type { PartitionProgress } from "./partition-progress.ts";
import type { Troubles } from "./troubles.ts";

const INTERVAL_MS = 50;
const RETRY_MS = 500;
const TROUBLE = "commits";

/** Commits how far the partitions of the present generation are done; one request at a time, shortly after progress. */
export class OffsetCommits {
  readonly #offsets: GroupOffsets;
  readonly #generation: () => Generation | undefined;
  readonly #troubles: Troubles;
  #timer: NodeJS.Timeout | undefined;
  /** Partitions whose commits were refused: they are tried less often, so that the others are not. */
  readonly #refusedAt = new WeakMap<PartitionProgress, number>();
  #writing: Promise<unknown> = Promise.resolve();
  #stopped = false;

  constructor(offsets: GroupOffsets, generation: () => Generation | undefined, troubles: Troubles) {
    this.#offsets = offsets;
    this.#generation = generation;
    this.#troubles = troubles;
  }

  soon(): void {
    if (this.#stopped || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => void this.#tick(), INTERVAL_MS);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** What is done by now; rejects when it could not be written. */
  async write(generation: Generation): Promise<void> {
    const write = this.#writing.then(() => this.#write(generation));
    this.#writing = write.catch(() => undefined);
    await write;
  }

  async #tick(): Promise<void> {
    const generation = this.#generation();
    let failed = false;
    if (generation !== undefined) {
      try {
        await this.write(generation);
        this.#troubles.over(TROUBLE);
      } catch (error) {
        failed = true;
        // The next join decides which member has the partitions. Until then another may have them, and commits their
        // offsets.
        const notOurs = hasApiError(error, "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS");
        if (!notOurs && !generation.ending.aborted) this.#troubles.remind(TROUBLE, () => error);
      }
    }
    this.#timer = undefined;
    const now = this.#generation();
    if (this.#stopped || now === undefined) return;
    // Something may have been done while the request was under way.
    const isDue = this.#due(now).length > 0;
    if (!isDue && !this.#isAnyRefused(now)) return;
    this.#timer = setTimeout(() => void this.#tick(), isDue && !failed ? INTERVAL_MS : RETRY_MS);
  }

  async #write(generation: Generation): Promise<void> {
    if (generation.lost.aborted) return;
    const due = this.#due(generation).map((progress) => ({ progress, place: progress.position }));
    if (due.length === 0) return;
    const refused = await this.#offsets.commit(
      due.map(({ progress: { topic, partition }, place }) => ({ topic, partition, place })),
    );
    for (const { progress, place } of due) {
      const code = refused.get(progress.name);
      const trouble = `${TROUBLE} of ${progress.name}`;
      if (code === undefined) {
        progress.committed = place;
        this.#refusedAt.delete(progress);
        this.#troubles.over(trouble);
      } else {
        const { topic, partition } = progress;
        this.#refusedAt.set(progress, performance.now());
        this.#troubles.remind(trouble, () => partitionError(`commit of ${topic}, partition ${partition}`, code));
      }
    }
  }

  #due({ partitions }: Generation): PartitionProgress[] {
    const before = performance.now() - RETRY_MS;
    return [...partitions.values()].filter(
      (progress) => progress.isToCommit && (this.#refusedAt.get(progress) ?? before) <= before,
    );
  }

  #isAnyRefused({ partitions }: Generation): boolean {
    return [...partitions.values()].some((progress) => progress.isToCommit && this.#refusedAt.has(progress));
  }
}
