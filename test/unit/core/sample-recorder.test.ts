import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { NewSample } from "../../../src/core/contracts.ts";
import { SampleRecorder } from "../../../src/core/sample-recorder.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function recorder() {
  const written: NewSample[] = [];
  const state = { broken: false, calls: 0 };
  const record = async (sample: NewSample): Promise<void> => {
    state.calls++;
    if (state.broken) throw new Error("permission denied for table sample");
    written.push(sample);
  };
  return { written, state, recorder: new SampleRecorder({ record }, { relay: "r" }, "me") };
}

it("writes nothing while nothing happens, and once in ten seconds otherwise", async () => {
  const { written, recorder: own } = recorder();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(written).toEqual([]);
  for (let i = 0; i < 100; i++) {
    own.count("published", 10);
    await vi.advanceTimersByTimeAsync(250);
  }
  own.error("refused");
  await vi.advanceTimersByTimeAsync(30_000);
  expect(written).toHaveLength(3);
  expect(written.reduce((sum, { published }) => sum + published, 0)).toBe(1000);
  expect(written.at(-1)?.lastError?.error).toBe("refused");
  await vi.advanceTimersByTimeAsync(600_000);
  expect(written).toHaveLength(3);
});

it("loses nothing by a write that fails, throws nothing, and asks less and less often", async () => {
  const { written, state, recorder: own } = recorder();
  state.broken = true;
  own.count("dead");
  own.error("first");
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(state.calls).toBeGreaterThan(5);
  expect(state.calls).toBeLessThan(15);
  state.broken = false;
  own.count("dead", 2);
  await own.flush();
  expect(written).toMatchObject([{ of: { relay: "r" }, owner: "me", dead: 3, lastError: { error: "first" } }]);
  await own.flush();
  expect(written).toHaveLength(1);
});

it("is not written again and again by one who drains often", async () => {
  const { written, recorder: own } = recorder();
  for (let i = 0; i < 30; i++) {
    own.count("published");
    await own.flushIfDue();
    await vi.advanceTimersByTimeAsync(1000);
  }
  await vi.advanceTimersByTimeAsync(20_000);
  expect(written.length).toBeLessThanOrEqual(4);
  expect(written.reduce((sum, { published }) => sum + published, 0)).toBe(30);
});

it("does nothing for a store that keeps no history", async () => {
  const own = new SampleRecorder(undefined, { consumer: "c" }, "me");
  own.count("processed");
  own.error("never told");
  expect(vi.getTimerCount()).toBe(0);
  await own.flush();
});
