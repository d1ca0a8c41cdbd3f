import { describe, expect, it } from "vitest";
import { LaneHistory } from "../../histories/lane-history.ts";
import { findFaults } from "../../histories/planted-faults.ts";
import { isLong } from "../../support/is-long.ts";

describe("random histories of the lane engine", () => {
  it("lose, double and reorder nothing", { timeout: 120_000 }, async () => {
    let deliveries = 0;
    for (let seed = 1; seed <= 15; seed++) deliveries += (await new LaneHistory(seed).run(2000)).deliveries;
    expect(deliveries).toBeGreaterThan(1000);
  });

  it.runIf(isLong)("find faults that are planted in the engine", { timeout: 600_000 }, async () => {
    const found = await findFaults(100_000);
    expect(found.filter(({ failed }) => failed.length === 0)).toEqual([]);
    expect(found.length).toBeGreaterThanOrEqual(6);
  });
});
