import type { EventMapOf } from "../../core/event-map.ts";
import type { AnyEvents, EventMap } from "../../core/message.ts";
import type { Health, HealthReport, ReadyReport } from "../../observability/health.ts";
import type { Outbox } from "../../outbox/outbox.ts";

/** Any transaction, but for what the compiler knows to be a client or an ORM itself. */
export type AnyTransaction = object & {
  readonly [
    Name in "totalCount" | "PostgresError" | "waitReady" | "$client" | "$connect" | "define" | "startSession"
  ]?: never;
};

/**
 * The outbox, to be injected: `TxboxOutbox<Events>`, or `TxboxOutbox<typeof events>` of what `defineEvents` gave. With `Tx`, the
 * type of your transactions, the compiler refuses all others.
 */
export class TxboxOutbox<Of extends EventMap = AnyEvents, Tx = AnyTransaction> implements Outbox<EventMapOf<Of>, Tx> {
  // With the forms of the outbox, which make the compiler show the payload of the type at hand.
  declare readonly enqueue: Outbox<EventMapOf<Of>, Tx>["enqueue"];
  declare readonly withTransaction: Outbox<EventMapOf<Of>, Tx>["withTransaction"];
  declare readonly enqueueHere: Outbox<EventMapOf<Of>, Tx>["enqueueHere"];
  declare readonly lockKey: Outbox<EventMapOf<Of>, Tx>["lockKey"];
  declare readonly cancel: Outbox<EventMapOf<Of>, Tx>["cancel"];

  constructor(outbox: Outbox<EventMapOf<Of>, Tx>) {
    Object.assign(this, outbox);
  }
}

/** What `@nestjs/terminus` takes from a health indicator. */
export type IndicatorResult<Key extends string = string> = Record<
  Key,
  { status: "up" | "down"; reasons: readonly string[] }
>;

/** Health of the relays of this process, to be injected. */
export class TxboxHealth implements Health {
  readonly #health: Health;

  constructor(health: Health) {
    this.#health = health;
  }

  live(): HealthReport {
    return this.#health.live();
  }

  ready(): Promise<ReadyReport> {
    return this.#health.ready();
  }

  /** For readiness: `health.check([() => txbox.isHealthy("messages")])` of `@nestjs/terminus`. Down when messages do not leave. */
  async isHealthy<Key extends string = "txbox">(key: Key = "txbox" as Key): Promise<IndicatorResult<Key>> {
    const { ok, reasons } = await this.ready();
    return { [key]: { status: ok ? "up" : "down", reasons } } as IndicatorResult<Key>;
  }

  /** For liveness: down when a relay of this process has ended or hangs. */
  isAlive<Key extends string = "txbox">(key: Key = "txbox" as Key): IndicatorResult<Key> {
    const { ok, reasons } = this.live();
    return { [key]: { status: ok ? "up" : "down", reasons } } as IndicatorResult<Key>;
  }
}
