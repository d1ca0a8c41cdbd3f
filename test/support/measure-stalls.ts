import { setTimeout as sleep } from "node:timers/promises";

export interface StallMeter {
  /** Ends it; the longest time between two answers, in ms. */
  end(): Promise<number>;
}

/**
 * Asks a server again and again, to find out for how long this process or the server did not get on. A process that
 * stood still for the time of its lease has lost it, as it should: that is no fault of it.
 */
export function measureStalls(ask: () => Promise<unknown>): StallMeter {
  const ended = new AbortController();
  let longestMs = 0;
  const measuring = (async () => {
    let answeredAt = performance.now();
    while (!ended.signal.aborted) {
      await sleep(10);
      await ask();
      const now = performance.now();
      longestMs = Math.max(longestMs, now - answeredAt);
      answeredAt = now;
    }
  })();
  // Awaited at the end; until then it must not count as unhandled.
  measuring.catch(() => undefined);
  return {
    async end() {
      ended.abort();
      await measuring;
      return longestMs;
    },
  };
}
