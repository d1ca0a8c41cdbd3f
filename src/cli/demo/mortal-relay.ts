import { systemClock } from "../../core/clock.ts";
import type { Clock, Publisher } from "../../core/contracts.ts";
import type { RelayOptions } from "../../relay/relay-options.ts";
import { createRelay, type Relay } from "../../relay/relay.ts";

export interface MortalRelay {
  readonly relay: Relay;
  /** Messages that reached the handlers, failed ones included. */
  readonly delivered: number;
  /** Resolves when the relay is gone. */
  readonly died: Promise<void>;
}

export interface MortalRelayOptions extends Omit<RelayOptions, "clock"> {
  /** Die in the batch that holds this many-th message, after it was published and before it is settled. */
  readonly dieAt?: number;
}

const never = new Promise<never>(() => undefined);

/**
 * PGlite lives inside this process, so nothing can be killed with a signal. Instead the relay's publisher and clock
 * stop answering: it never settles, renews its lease or leaves again, which is all that a `kill -9` would change.
 */
export function createMortalRelay({ dieAt = Number.POSITIVE_INFINITY, ...options }: MortalRelayOptions): MortalRelay {
  const { promise: died, resolve } = Promise.withResolvers<void>();
  let dead = false;
  let delivered = 0;
  const publisher: Publisher = {
    keepsKeyOrder: options.publisher.keepsKeyOrder,
    async publish(messages, signal) {
      const results = await options.publisher.publish(messages, signal);
      delivered += results.filter(({ status }) => status !== "unavailable").length;
      if (delivered < dieAt) return results;
      dead = true;
      resolve();
      return never;
    },
  };
  const clock: Clock = {
    monotonic: () => systemClock.monotonic(),
    async sleep(ms, signal) {
      await systemClock.sleep(ms, signal);
      if (dead) await never;
    },
  };
  return {
    relay: createRelay({ ...options, publisher, clock }),
    get delivered() {
      return delivered;
    },
    died,
  };
}
