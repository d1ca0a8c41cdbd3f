import type { Handle, Subscriber } from "../core/contracts.ts";
import { RunsOnce, type Subscription } from "./runs-once.ts";

/** Begins a subscription; resolves when messages come. `stopping` aborts with `stop`, also before that. */
export type BeginSubscription = (consumer: string, handle: Handle, stopping: AbortSignal) => Promise<Subscription>;

/**
 * A subscriber from the function that begins a subscription. It serves one consumer at a time; `stop` may be called at
 * any time, and twice.
 */
export function createSubscriber(begin: BeginSubscription): Subscriber {
  const running = new RunsOnce("subscriber");
  return {
    start: (consumer, handle) => running.start(consumer, (stopping) => begin(consumer, handle, stopping)),
    stop: () => running.stop(),
  };
}
