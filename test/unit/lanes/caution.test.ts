import { describe, expect, test } from "vitest";
import { carefulLimit } from "../../../src/lanes/caution.ts";

describe("messages whose owners have died", () => {
  test("are read as ever after one death, one at a time after two", () => {
    expect([0, 1, 2, 9].map((crashes) => carefulLimit(crashes, 0))).toEqual([undefined, undefined, 1, 1]);
  });

  test("are taken in larger numbers as they go well, so that deaths of other causes do not make it slow", () => {
    const limits = [0, 15, 16, 79, 80, 335, 336].map((tried) => carefulLimit(5, tried));
    expect(limits).toEqual([1, 1, 64, 64, 256, 256, undefined]);
  });
});
