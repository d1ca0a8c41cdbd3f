import type { ContractsOf, EventDefinition } from "./contract.ts";
import { TxboxError } from "./errors.ts";
import { readDefinitions, type EventContract } from "./event-contract.ts";
import type { EventMap, HandledMessage, HandledPayload } from "./message.ts";
import { valueKind } from "./value-kind.ts";

declare const carried: unique symbol;

/** An event map as a value, so that both the events and the store's transaction type are inferred. */
export interface Events<Map extends EventMap> {
  readonly [carried]?: Map;
  /** By message type; undefined when the types were given without schemas, and nothing is checked. */
  readonly contracts?: Contracts | undefined;
}

/** The event map of `typeof events`, where `events` is what `defineEvents` gave; an event map itself stays what it is. */
export type EventMapOf<Of extends EventMap> = typeof carried extends keyof Of
  ? Of extends Events<infer Map>
    ? Map
    : never
  : Of;

/** The message that a handler of the type gets: `MessageOf<typeof events, "order_created">`, or of an event map. */
export type MessageOf<Of extends EventMap, Type extends keyof EventMapOf<Of> & string> = HandledMessage<
  Type,
  HandledPayload<EventMapOf<Of>[Type]>
>;

export type Contracts = ReadonlyMap<string, EventContract>;

/** `createInbox({ store, consumer, events: defineEvents<{ order_created: Order }>() })`: types only, nothing at run time. */
export function defineEvents<Map extends EventMap>(): Events<Map>;
/** With schemas: payloads are checked when they are enqueued and before they are handled, and versions are told apart. */
export function defineEvents<const Definitions extends Readonly<Record<string, EventDefinition>>>(
  definitions: Definitions,
): Events<ContractsOf<Definitions>>;
export function defineEvents(...given: readonly unknown[]): Events<object> {
  return given.length === 0 ? {} : { contracts: readDefinitions(given[0]) };
}

/** The contracts of the option `events`. */
export function contractsOf(of: string, events: unknown): Contracts | undefined {
  if (events === undefined) return undefined;
  if (typeof events === "object" && events !== null) {
    const { contracts } = events as Events<object>;
    if (contracts instanceof Map) return contracts as Contracts;
    if (contracts === undefined && Object.keys(events).length === 0) return undefined;
  }
  throw new TxboxError("invalid_option", `${of}: events is ${valueKind(events)} that defineEvents did not give`, {
    field: "events",
    fix: "Pass { events: defineEvents({ … }) }",
  });
}
