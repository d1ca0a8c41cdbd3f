import type { Store, Subscriber } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import type { AnyEvents, EventMap } from "../../core/message.ts";
import { rejectUnknownOptions, requireInteger } from "../../core/options.ts";
import { createInbox, type Inbox, type InboxOptions } from "../../inbox/inbox.ts";
import { createHealth, type Health } from "../../observability/health.ts";
import { createOutbox, type Outbox, type OutboxOptions } from "../../outbox/outbox.ts";
import { createRelay, type Relay } from "../../relay/relay.ts";
import type { RelayOptions } from "../../relay/relay-options.ts";

/** What an application has of txbox: one store, and what it runs over it. */
export interface MessagingOptions<Map extends EventMap = AnyEvents> {
  store: Store;
  /** Of the outbox and of the inboxes; see `defineEvents`. */
  events?: NonNullable<OutboxOptions<Map, object>["events"]>;
  /** Of the outbox. Default 1 MiB. */
  maxPayloadBytes?: number;
  /** Relays that this process runs: the options of createRelay without the store. */
  relays?: readonly RelayPart[];
  /** Inboxes that this process runs: the options of createInbox without the store, and where messages come from. */
  inboxes?: readonly InboxPart[];
  /** How long a stop waits for what is in hand. Default 10 s. */
  stopDeadlineMs?: number;
  /** A relay whose oldest pending message has waited longer is not ready. Default: five minutes. */
  maxAgeMs?: number;
}

/** What `defineEvents` gave, whatever its types: handlers name their own. */
type EventsOption = NonNullable<InboxOptions<EventMap, unknown>["events"]>;

export type RelayPart = Omit<RelayOptions, "store">;

export interface InboxPart extends Omit<InboxOptions<AnyEvents, unknown>, "store" | "events" | "mode"> {
  /** Where messages of other services come in: their events. Default: those of the application. */
  events?: EventsOption;
  /** Where messages come from: a subscriber of a broker, or an in-process bus. */
  subscriber: Subscriber;
}

/** All parts of an application, started and stopped together. */
export interface Messaging<Map extends EventMap> {
  readonly outbox: Outbox<Map, object>;
  readonly relays: readonly Relay[];
  /** By consumer. */
  readonly inboxes: ReadonlyMap<string, Inbox<AnyEvents, unknown>>;
  readonly health: Health;
  /** Inboxes first, so that relays find them. When one fails, all are stopped again, and its error is thrown. */
  start(): Promise<void>;
  /** Relays first, so that what they have in hand can be handled. Everything is stopped, whatever one of them throws. */
  stop(): Promise<void>;
}

const KNOWN = ["store", "events", "maxPayloadBytes", "relays", "inboxes", "stopDeadlineMs", "maxAgeMs"];

export function createMessaging<Map extends EventMap>(
  of: string,
  options: MessagingOptions<Map>,
  more: readonly string[] = [],
): Messaging<Map> {
  rejectUnknownOptions(of, options, [...KNOWN, ...more]);
  const { store, events, maxPayloadBytes, stopDeadlineMs = 10_000, maxAgeMs } = options;
  requireInteger(of, "stopDeadlineMs", stopDeadlineMs, 0);
  const outbox = createOutbox<Map>({
    store,
    ...(events === undefined ? {} : { events }),
    ...(maxPayloadBytes === undefined ? {} : { maxPayloadBytes }),
  });
  const relays = listOf(of, "relays", options.relays).map((relay) => createRelay({ ...relay, store }));
  const inboxes = new globalThis.Map<string, Inbox<AnyEvents, unknown>>();
  const starts: (() => Promise<void>)[] = [];
  for (const { subscriber, events: ownEvents, ...inboxOptions } of listOf(of, "inboxes", options.inboxes)) {
    const { consumer } = inboxOptions;
    if (typeof subscriber?.start !== "function") {
      throw invalid("inboxes", `${of}: the inbox ${consumer} needs a subscriber`, "Pass { consumer, subscriber }");
    }
    if (inboxes.has(consumer)) {
      throw invalid("inboxes", `${of}: there are two inboxes ${consumer}`, "Give each a consumer of its own");
    }
    const handled = (ownEvents ?? events) as InboxOptions<AnyEvents, unknown>["events"];
    const inbox = createInbox<AnyEvents, unknown>({
      ...inboxOptions,
      store,
      ...(handled === undefined ? {} : { events: handled }),
    });
    inboxes.set(consumer, inbox);
    starts.push(() => inbox.start(subscriber));
  }
  const health = createHealth({ store, relays, ...(maxAgeMs === undefined ? {} : { maxAgeMs }) });

  async function stop(): Promise<void> {
    const ended = [
      ...(await Promise.allSettled(relays.map((relay) => relay.stop({ deadlineMs: stopDeadlineMs })))),
      ...(await Promise.allSettled([...inboxes.values()].map((inbox) => inbox.stop()))),
    ];
    const failed = ended.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  return {
    outbox,
    relays,
    inboxes,
    health,
    async start() {
      try {
        for (const begin of starts) await begin();
        await Promise.all(relays.map((relay) => relay.start()));
      } catch (error) {
        await stop().catch(() => undefined);
        throw error;
      }
    },
    stop,
  };
}

function listOf<T>(of: string, name: string, value: readonly T[] | undefined): readonly T[] {
  if (value === undefined || Array.isArray(value)) return value ?? [];
  throw invalid(name, `${of}: ${name} must be an array`, `Pass ${name}: […]`);
}

export function invalid(field: string, message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", message, { field, fix });
}
