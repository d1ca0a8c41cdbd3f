import { describe, expect, it } from "vitest";
import { fakeClock, missingFeatures, runConformance, within, withCrashPoints } from "../../../src/testing/index.ts";
import type { Claim, QueueSession, Store } from "../../../src/core/contracts.ts";

describe("fakeClock", () => {
  it("stands still, and wakes sleepers in order as it goes on", async () => {
    const clock = fakeClock(1000);
    const woken: number[] = [];
    for (const ms of [30, 10, 20]) void clock.sleep(ms).then(() => woken.push(ms));
    expect([clock.monotonic(), clock.sleeping]).toEqual([1000, 3]);
    await clock.advance(25);
    expect([woken, clock.monotonic(), clock.sleeping]).toEqual([[10, 20], 1025, 1]);
  });

  it("gives code that sleeps again within the stretch a turn each time", async () => {
    const clock = fakeClock();
    let turns = 0;
    void (async () => {
      for (;;) {
        await clock.sleep(10);
        turns++;
      }
    })();
    await clock.advance(55);
    expect(turns).toBe(5);
  });

  it("ends a sleep when its signal aborts, or has aborted", async () => {
    const clock = fakeClock();
    const stop = new AbortController();
    const sleeping = clock.sleep(1000, stop.signal);
    stop.abort();
    await sleeping;
    await clock.sleep(1000, stop.signal);
    expect(clock.sleeping).toBe(0);
  });
});

describe("runConformance", () => {
  it("runs what applies, skips the rest visibly and disposes of every context", async () => {
    const log: string[] = [];
    const tests: (() => Promise<void>)[] = [];
    const cases = [
      { role: "r", name: "plain", run: async (context: { n: number }) => void log.push(`run ${context.n}`) },
      { role: "r", name: "special", needs: ["a", "b"] as const, run: async () => void log.push("never") },
    ];
    runConformance<{ n: number }, "a" | "b">(cases, {
      features: ["a"],
      context: async () => ({ n: 1, [Symbol.asyncDispose]: async () => void log.push("disposed") }),
      it: (_, run) => void tests.push(run),
      skip: (name, missing) => void log.push(`skip ${name}: ${missing.join()}`),
    });
    for (const run of tests) await run();
    expect(log).toEqual(["skip r: special: b", "run 1", "disposed"]);
    expect(missingFeatures({}, [])).toEqual([]);
  });
});

describe("within", () => {
  it("names what did not come in time", async () => {
    await expect(within(10, "the thing", new Promise(() => undefined))).rejects.toThrow("the thing: not within 10 ms");
    expect(await within(1000, "the thing", Promise.resolve(1))).toBe(1);
  });
});

describe("withCrashPoints", () => {
  it("passes every point of claim, publish and settle, in order", async () => {
    const claim: Claim = { kind: "new", messages: [], attempts: undefined, alone: false, crashes: 0 };
    const session = { claim: async () => claim, settle: async () => undefined } as unknown as QueueSession;
    const store = { queue: { join: async () => session } } as unknown as Store;
    const points: string[] = [];
    const watched = withCrashPoints({ store, publisher: { keepsKeyOrder: true, publish: async () => [] } }, (point) =>
      points.push(point),
    );
    const joined = await watched.store.queue.join({} as never);
    await joined.claim("new");
    await watched.publisher.publish([], new AbortController().signal);
    await joined.settle(claim, []);
    expect(points).toEqual(["claimed", "publishing", "published", "settling", "settled"]);
  });
});
