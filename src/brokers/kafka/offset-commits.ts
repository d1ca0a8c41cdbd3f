import type { Generation } from "./generation.ts";
import type { KafkaConsumer } from "./kafka-client.ts";
import { explain, hasApiError } from "./kafka-errors.ts";

const INTERVAL_MS = 50;
/** None: this client checks no epochs, and a wrong one would mislead those that do. */
export const NO_EPOCH = -1;

/** Commits how far the partitions of the present generation are done; one request at a time, shortly after progress. */
export class OffsetCommits {
  readonly #consumer: KafkaConsumer;
  readonly #generation: () => Generation | undefined;
  readonly #outage: (error: unknown, attempt: number, delayMs: number) => void;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(
    consumer: KafkaConsumer,
    generation: () => Generation | undefined,
    outage: (error: unknown, attempt: number, delayMs: number) => void,
  ) {
    this.#consumer = consumer;
    this.#generation = generation;
    this.#outage = outage;
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
  write(generation: Generation): Promise<void> {
    const write = this.#writing.then(() => this.#write(generation));
    this.#writing = write.catch(() => undefined);
    return write;
  }

  async #tick(): Promise<void> {
    const generation = this.#generation();
    let delayMs = INTERVAL_MS;
    if (generation !== undefined) {
      try {
        await this.write(generation);
      } catch (error) {
        // The next join decides who has the partitions; until then others may, and it is theirs to say how far they are.
        const notOurs = hasApiError(error, "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS");
        delayMs = 500;
        if (!notOurs && !generation.ending.aborted) this.#outage(explain(error), 1, delayMs);
        if (!this.#stopped) this.#timer = setTimeout(() => void this.#tick(), delayMs);
        return;
      }
    }
    this.#timer = undefined;
    // Something may have been done while the request was under way.
    const now = this.#generation();
    if (now !== undefined && this.#due(now).length > 0) this.soon();
  }

  async #write(generation: Generation): Promise<void> {
    if (generation.lost.aborted) return;
    const due = this.#due(generation);
    if (due.length === 0) return;
    await this.#consumer.commit({ offsets: due.map(({ offset }) => offset) });
    for (const { progress, offset } of due) progress.committed = offset.offset;
  }

  #due({ partitions }: Generation) {
    return [...partitions.values()].flatMap((progress) => {
      const { topic, partition, position: offset, committed } = progress;
      return offset > committed ? [{ progress, offset: { topic, partition, offset, leaderEpoch: NO_EPOCH } }] : [];
    });
  }
}
