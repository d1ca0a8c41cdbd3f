import fc from "fast-check";
import { expect, test } from "vitest";
import { LANES } from "../../../../src/core/lane.ts";
import { laneMask } from "../../../../src/stores/postgres/settle-sql.ts";

const ALL = Array.from({ length: LANES }, (_, lane) => lane);

/** As PostgreSQL reads it: the bits of a signed bigint. */
const lanesOf = (mask: string): number[] => ALL.filter((lane) => ((BigInt(mask) >> BigInt(lane)) & 1n) === 1n);

test("bit n stands for lane n, for any lanes in any order", () => {
  fc.assert(
    fc.property(fc.shuffledSubarray(ALL), (lanes) => {
      expect(lanesOf(laneMask(lanes))).toEqual(lanes.toSorted((a, b) => a - b));
    }),
  );
});

test.each([
  ["no lane", [], "0"],
  ["the first", [0], "1"],
  ["the last, which is the sign", [63], "-9223372036854775808"],
  ["all but the last", ALL.slice(0, -1), "9223372036854775807"],
  ["all", ALL, "-1"],
])("%s fits a bigint", (_, lanes, mask) => {
  expect(laneMask(lanes)).toBe(mask);
  expect(BigInt.asIntN(64, BigInt(mask))).toBe(BigInt(mask));
});
