import type { Times } from "./contestant.ts";

/** Notes the monotonic time at which each message was first heard; the clock is the same in every process. */
export function createHearing(): { heard: (seq: number) => void; arrivals: () => Times } {
  const times = new Map<number, bigint>();
  return {
    heard(seq) {
      if (!times.has(seq)) times.set(seq, process.hrtime.bigint());
    },
    arrivals: () => Array.from(times, ([seq, time]) => [seq, time.toString()]),
  };
}
