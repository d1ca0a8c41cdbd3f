import type { Clock, JoinOptions } from "../../core/contracts.ts";
import type { StoredMessage } from "./mongodb-document.ts";
import type { Tables } from "./mongodb-names.ts";
import type { RelayView } from "./mongodb-ownership.ts";
import { forgotten } from "./take-back.ts";

/** Work that is done now and then while lanes are held. */
export class Upkeep {
  readonly #tables: Tables;
  readonly #options: JoinOptions;
  readonly #clock: Clock;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #renewedAt = Number.NEGATIVE_INFINITY;

  constructor(tables: Tables, options: JoinOptions, clock: Clock) {
    this.#tables = tables;
    this.#options = options;
    this.#clock = clock;
  }

  /** Whether a process that is no longer a member holds documents of these lanes. A reload takes them back. */
  async hasForgotten(lanes: readonly number[], { members }: RelayView): Promise<boolean> {
    const { relay, leaseMs } = this.#options;
    const now = this.#clock.monotonic();
    if (now - this.#lookedAt < leaseMs) return false;
    this.#lookedAt = now;
    const filter = forgotten({ relay, lanes, members: members.map(({ owner }) => owner) });
    return (await this.#tables.outbox.findOne(filter, { projection: { _id: 1 } })) !== null;
  }

  /** Claims that are in hand for long show that their owner lives. */
  async renewDocuments(inHand: readonly StoredMessage[], owner: string, until: Date): Promise<void> {
    const now = this.#clock.monotonic();
    if (now - this.#renewedAt < this.#options.leaseMs / 3) return;
    const tokens = new Set(inHand.flatMap(({ token }) => token ?? []));
    if (tokens.size === 0) return;
    this.#renewedAt = now;
    await this.#tables.outbox.updateMany(
      { status: "processing", lease_owner: owner, lease_token: { $in: [...tokens] } },
      { $set: { lease_until: until } },
    );
  }
}
