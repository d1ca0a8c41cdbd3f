import { expect, it } from "vitest";
import type { RelayEvent } from "../../../src/core/events.ts";
import { RouteOutages } from "../../../src/relay/route-outages.ts";

it("forgets a route that nothing waits for any more, and says so", () => {
  let now = 0;
  const events: RelayEvent[] = [];
  const clock = { monotonic: () => now, sleep: () => Promise.resolve() };
  const outageBackoff = { baseMs: 100, maxMs: 10_000 };
  const routes = new RouteOutages({ name: "r", clock, outageBackoff, emit: (event) => void events.push(event) });
  for (let n = 0; n < 100; n++) routes.out(`receiver ${n}`, new Error("away"));
  now = 30_000;
  routes.out("receiver 0", new Error("away"));
  expect(routes.list().length).toBe(100);
  // The others died, or went to another process.
  now = 65_000;
  expect(routes.list().map(({ route, attempt }) => [route, attempt])).toEqual([["receiver 0", 2]]);
  expect(events.filter(({ type }) => type === "route_back").length).toBe(99);
});
