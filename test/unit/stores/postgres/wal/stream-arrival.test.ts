import { describe, expect, it } from "vitest";
import { StreamArrival } from "../../../../../src/stores/postgres/wal/stream-arrival.ts";

/** A stream on a server whose log can be made to grow. */
function opened() {
  const at = { ms: 0, received: 100n, end: 1000n };
  const asked: bigint[] = [];
  let arrivals = 0;
  const arrival = new StreamArrival({
    clock: { monotonic: () => at.ms, sleep: async (ms) => void (at.ms += ms) },
    received: () => at.received,
    sql: {
      query: async () => {
        asked.push(at.end);
        return [[`0/${at.end.toString(16)}`]];
      },
    },
    onArrived: () => void arrivals++,
    onError: (error) => {
      throw error;
    },
  });
  arrival.goTo(at.end);
  const come = async (to: bigint, afterMs: number): Promise<void> => {
    at.ms += afterMs;
    at.received = to;
    arrival.note();
    await Promise.resolve();
    await Promise.resolve();
  };
  return { arrival, at, asked, come, arrivals: () => arrivals };
}

describe("a stream that comes up to the server's log", () => {
  it("has arrived at the end that the log had, and says so once", async () => {
    const { arrival, come, arrivals } = opened();
    await come(999n, 10);
    expect([arrival.hasArrived, arrivals()]).toEqual([false, 0]);
    await come(1000n, 10);
    await come(2000n, 10);
    expect([arrival.hasArrived, arrivals()]).toEqual([true, 1]);
  });

  it("goes on to what was written on a long way, once, though the log grows all the time", async () => {
    const { arrival, at, asked, come, arrivals } = opened();
    at.end = 5000n;
    await come(1000n, 6000);
    expect([arrival.hasArrived, asked]).toEqual([false, [5000n]]);
    at.end = 9000n;
    await come(5000n, 6000);
    expect([arrival.hasArrived, asked, arrivals()]).toEqual([true, [5000n], 1]);
  });

  it("is there at once when what was written had come before the answer", async () => {
    const { arrival, at, come } = opened();
    at.end = 1500n;
    await come(2000n, 6000);
    expect(arrival.hasArrived).toBe(true);
  });

  it("is stuck only when nothing moves for a minute: neither rows, nor an old part that is read once more", () => {
    const { arrival, at } = opened();
    expect(arrival.isStuck(10n, false)).toBe(false);
    at.ms += 59_000;
    expect(arrival.isStuck(11n, false), "the server reads an old part").toBe(false);
    at.ms += 59_000;
    at.received = 101n;
    expect(arrival.isStuck(11n, false), "something came").toBe(false);
    at.ms += 61_000;
    expect(arrival.isStuck(11n, true), "the relay itself reads no further").toBe(false);
    at.ms += 61_000;
    expect(arrival.isStuck(11n, false)).toBe(true);
  });
});
