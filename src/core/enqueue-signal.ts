import { AsyncResource } from "node:async_hooks";

type Listener = () => void;

const listeners = new WeakMap<object, Set<Listener>>();

/**
 * Tells relays of this process that something was enqueued on this store. It comes before the commit, which only the
 * caller sees: a listener should poll eagerly for a short while, not once.
 */
export function notifyEnqueued(store: object): void {
  const those = listeners.get(store);
  if (those === undefined) return;
  for (const listener of those) listener();
}

/** Calls back after each enqueue on this store in this process; gives the function that ends it. */
export function onEnqueued(store: object, listener: Listener): () => void {
  let those = listeners.get(store);
  if (those === undefined) listeners.set(store, (those = new Set()));
  // Called from within a handler, the listener must not take on the context of that handler.
  const bound = AsyncResource.bind(listener);
  those.add(bound);
  return () => void those.delete(bound);
}
