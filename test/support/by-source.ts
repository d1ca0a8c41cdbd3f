import type { SourceEvent, Store } from "../../src/core/contracts.ts";

/** The store itself, whose sessions get new messages this way from now on. */
export function bySource<S extends Pick<Store, "queue">>(
  store: S,
  source: "polling" | "stream",
  onEvent: (event: SourceEvent) => void = () => undefined,
): S {
  const before = store.queue;
  const queue: S["queue"] = {
    join: (options) =>
      before.join({
        ...options,
        source,
        onSourceEvent(event) {
          onEvent(event);
          options.onSourceEvent?.(event);
        },
      }),
  };
  return Object.assign(store, { queue });
}
