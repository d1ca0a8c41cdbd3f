import { expect, it } from "vitest";
import type { RelayEvent } from "../../../src/core/events.ts";
import { TargetOutage } from "../../../src/relay/target-outage.ts";

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
