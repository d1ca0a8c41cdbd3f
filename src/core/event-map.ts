import type { EventMap } from "./message.ts";

declare const carried: unique symbol;

/** An event map as a value, so that both the events and the store's transaction type are inferred. */
export interface Events<Map extends EventMap> {
  readonly [carried]?: Map;
}

/** `createInbox({ store, consumer, events: defineEvents<{ order_created: Order }>() })`: nothing at run time. */
export function defineEvents<Map extends EventMap>(): Events<Map> {
  return {};
}
