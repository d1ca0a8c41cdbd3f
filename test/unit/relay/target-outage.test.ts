import { expect, it } from "vitest";
import type { RelayEvent } from "../../../src/core/events.ts";
import { outageMs } from "../../../src/core/backoff.ts";
import { systemClock } from "../../../src/core/clock.ts";
import { TargetOutage } from "../../../src/relay/target-outage.ts";

it.each([1e16, 1e300, Number.POSITIVE_INFINITY, Number.NaN, -1, 5])(
  "asked to wait for %s ms, it waits no longer than a day",
  (asked) => {
    const waits = outageMs(1, { baseMs: 0, maxMs: 0 }, asked);
    expect(waits).toBeGreaterThanOrEqual(10);
    expect(waits).toBeLessThanOrEqual(86_400_000);
  },
);

it("sleeps for longer than a timer can wait without waking at once", async () => {
  const called = new AbortController();
  let over = false;
  const sleeping = systemClock.sleep(2 ** 31, called.signal).then(() => (over = true));
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(over).toBe(false);
  called.abort();
  await sleeping;
});

it("is not over because of a batch that was begun before the outage was found", () => {
  let now = 1000;
  const events: RelayEvent[] = [];
  const clock = { monotonic: () => now, sleep: () => Promise.resolve() };
  const outageBackoff = { baseMs: 100, maxMs: 10_000 };
  const outage = new TargetOutage({ name: "r", clock, outageBackoff, emit: (event) => void events.push(event) });
  outage.found(new Error("away"));
  const leftMs = outage.leftMs;
  expect(leftMs).toBeGreaterThan(0);
  outage.over(999);
  expect(outage.leftMs).toBe(leftMs);
  now += leftMs;
  outage.over(now);
  expect(outage.leftMs).toBe(0);
  expect(events.map(({ type }) => type)).toEqual(["outage", "recovered"]);
});
