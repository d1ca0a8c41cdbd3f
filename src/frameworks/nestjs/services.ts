import type { Enqueued } from "../../core/contracts.ts";
import type { EventMapOf } from "../../core/event-map.ts";
import type { AnyEvents, EventMap, NewMessageOf } from "../../core/message.ts";
import type { Health, HealthReport, ReadyReport } from "../../observability/health.ts";
import type { Outbox } from "../../outbox/outbox.ts";

/** The outbox, to be injected: `TxboxOutbox<Events>`, or `TxboxOutbox<typeof events>` of what `defineEvents` gave. */
export class TxboxOutbox<Of extends EventMap = AnyEvents> implements Outbox<EventMapOf<Of>, object> {
  readonly #outbox: Outbox<EventMapOf<Of>, object>;

  constructor(outbox: Outbox<EventMapOf<Of>, object>) {
    this.#outbox = outbox;
  }

  enqueue(tx: object, message: NewMessageOf<EventMapOf<Of>>): Promise<Enqueued>;
  enqueue(tx: object, messages: readonly NewMessageOf<EventMapOf<Of>>[]): Promise<Enqueued[]>;
  enqueue(
    tx: object,
    messages: NewMessageOf<EventMapOf<Of>> & readonly NewMessageOf<EventMapOf<Of>>[],
  ): Promise<Enqueued | Enqueued[]> {
    return this.#outbox.enqueue(tx, messages);
  }

  withTransaction<T>(tx: object, run: () => Promise<T>): Promise<T> {
    return this.#outbox.withTransaction(tx, run);
  }

  enqueueHere(message: NewMessageOf<EventMapOf<Of>>): Promise<Enqueued>;
  enqueueHere(messages: readonly NewMessageOf<EventMapOf<Of>>[]): Promise<Enqueued[]>;
  enqueueHere(
    messages: NewMessageOf<EventMapOf<Of>> & readonly NewMessageOf<EventMapOf<Of>>[],
  ): Promise<Enqueued | Enqueued[]> {
    return this.#outbox.enqueueHere(messages);
  }

  lockKey(tx: object, of: { stream: string; key: string }): Promise<void> {
    return this.#outbox.lockKey(tx, of);
  }

  cancel(tx: object, id: string): Promise<boolean> {
    return this.#outbox.cancel(tx, id);
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
