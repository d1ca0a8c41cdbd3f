import { describe, expect, test } from "vitest";
import { LANES } from "../../../src/core/lane.ts";
import { planBalance } from "../../../src/lanes/balance.ts";
import { BALANCE_PROPERTIES } from "./balance-properties.ts";

const lanesOf = (owners: readonly (readonly [string | null, number])[], freeMs = 100) =>
  owners
    .flatMap(([owner, count]) => Array.from({ length: count }, () => owner))
    .map((owner, lane) => ({ lane, owner, freeMs: owner === null ? freeMs : -10_000 }));

describe("lanes are shared out", () => {
  test.each(Object.keys(BALANCE_PROPERTIES) as (keyof typeof BALANCE_PROPERTIES)[])("%s", (name) =>
    BALANCE_PROPERTIES[name](planBalance),
  );

  test("one that is no member does nothing", () => {
    const lanes = lanesOf([[null, LANES]]);
    expect(planBalance({ self: "late", members: ["a"], lanes })).toEqual({ take: [], give: [] });
  });

  test("of free lanes each has one taker", () => {
    const lanes = lanesOf([[null, LANES]]);
    const members = ["x", "y", "z"];
    const taken = members.flatMap((self) => planBalance({ self, members, lanes }).take);
    expect(taken.toSorted((a, b) => a - b)).toEqual(lanes.map(({ lane }) => lane));
  });

  test("the one furthest above its share gives what others lack", () => {
    const lanes = lanesOf([
      ["x", 44],
      ["y", 15],
      ["z", 5],
    ]);
    const members = ["x", "y", "z"];
    expect(planBalance({ self: "x", members, lanes }).give).toHaveLength(22);
    expect(planBalance({ self: "y", members, lanes })).toEqual({ take: [], give: [] });
  });

  test("a lane whose lease has run out is free, whichever process owned it", () => {
    const lanes = Array.from({ length: LANES }, (_, lane) => ({ lane, owner: "gone", freeMs: 0 }));
    expect(planBalance({ self: "x", members: ["x"], lanes }).take).toHaveLength(LANES);
  });
});
