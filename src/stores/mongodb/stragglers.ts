import type { Document } from "./mongodb-client.ts";
import type { Tables } from "./mongodb-names.ts";
import { type ClusterTime, isAfter } from "./cluster-time.ts";
import { type LookOptions, operationTime } from "./snapshot-look.ts";

const EVERY_MS = 60_000;

/**
 * Looks, while a stream never runs dry, for what it does not bring: documents that were made ready by hand. Such a one
 * is still ready when all that the stream had told by then is settled.
 */
export class Stragglers {
  readonly #options: LookOptions & { tables: Tables };
  #lookedAt: number;
  #passed: ClusterTime | undefined;
  #suspect: { id: unknown; seenAt: ClusterTime } | undefined;

  constructor(options: LookOptions & { tables: Tables }) {
    this.#options = options;
    this.#lookedAt = options.clock.monotonic();
  }

  /** All that the stream told of until this time is settled. */
  passed(time: ClusterTime): void {
    this.#passed = time;
  }

  /** Looks once in a while. `filter` is what the stream is to bring. */
  async found(filter: Document): Promise<boolean> {
    const now = this.#options.clock.monotonic();
    if (now - this.#lookedAt < EVERY_MS) return false;
    this.#lookedAt = now;
    const { outbox } = this.#options.tables;
    const suspect = this.#suspect;
    if (suspect !== undefined) {
      if (this.#passed === undefined || !isAfter(this.#passed, suspect.seenAt)) return false;
      if ((await outbox.findOne({ _id: suspect.id, waits: "ready" }, { hint: { _id: 1 } })) !== null) return true;
    }
    const first = await outbox.findOne(filter, { sort: { position: 1 }, projection: { _id: 1 }, hint: "txbox_ready" });
    this.#suspect = first === null ? undefined : { id: first["_id"], seenAt: await operationTime(this.#options) };
    return false;
  }
}
