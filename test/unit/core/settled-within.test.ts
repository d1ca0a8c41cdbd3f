import { expect, test } from "vitest";
import { ABORTED, LATE, settledWithin } from "../../../src/core/settled-within.ts";
import { fakeClock } from "../../../src/testing/fake-clock.ts";

const never = new Promise<never>(() => undefined);

test("a promise that settles in time gives its value or its error", async () => {
  expect(await settledWithin(Promise.resolve("late"), 1000)).toBe("late");
  await expect(settledWithin(Promise.reject(new Error("no")), 1000)).rejects.toThrow("no");
});

test("one that does not is late, by the clock that is given", async () => {
  const clock = fakeClock();
  const waiting = settledWithin(never, 60_000, undefined, clock);
  await clock.advance(60_000);
  expect(await waiting).toBe(LATE);
  expect(clock.sleeping).toBe(0);
});

test("a signal ends the wait, and an error that comes after that is ignored", async () => {
  const { promise, reject } = Promise.withResolvers<void>();
  const stop = new AbortController();
  const waiting = settledWithin(promise, 60_000, stop.signal);
  stop.abort();
  expect(await waiting).toBe(ABORTED);
  reject(new Error("later"));
  expect(await settledWithin(never, 1, stop.signal)).toBe(ABORTED);
});
