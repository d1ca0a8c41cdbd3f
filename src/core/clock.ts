import type { Clock } from "./contracts.ts";

/** What timers of Node can wait for. A longer one would end at once. */
const LONGEST_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  monotonic: () => performance.now(),
  sleep(ms, signal) {
    if (signal?.aborted === true) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, Math.min(ms, LONGEST_MS));
      signal?.addEventListener("abort", done, { once: true });
    });
  },
};
