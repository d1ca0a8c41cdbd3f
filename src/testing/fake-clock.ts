import type { Clock } from "../core/contracts.ts";

export interface FakeClock extends Clock {
  /** Moves time on and ends the sleeps that are over by then, in order. */
  advance(ms: number): Promise<void>;
  /** Sleeps that have not ended. */
  readonly sleeping: number;
}

interface Sleeper {
  readonly endsAt: number;
  readonly wake: () => void;
}

/** A clock that stands still until it is told to go on. */
export function fakeClock(startMs = 0): FakeClock {
  let now = startMs;
  const sleepers = new Set<Sleeper>();
  const nextUpTo = (end: number): Sleeper | undefined =>
    [...sleepers].filter(({ endsAt }) => endsAt <= end).sort((a, b) => a.endsAt - b.endsAt)[0];
  return {
    monotonic: () => now,
    get sleeping() {
      return sleepers.size;
    },
    sleep(ms, signal) {
      if (signal?.aborted === true) return Promise.resolve();
      return new Promise((resolve) => {
        const wake = () => {
          sleepers.delete(sleeper);
          signal?.removeEventListener("abort", wake);
          resolve();
        };
        const sleeper = { endsAt: now + ms, wake };
        sleepers.add(sleeper);
        signal?.addEventListener("abort", wake, { once: true });
      });
    },
    async advance(ms) {
      const end = now + ms;
      for (let next = nextUpTo(end); next !== undefined; next = nextUpTo(end)) {
        now = Math.max(now, next.endsAt);
        next.wake();
        // Code that woke may go to sleep again within this stretch of time.
        await new Promise((resolve) => setImmediate(resolve));
      }
      now = end;
    },
  };
}
