import { describe, expect, test } from "vitest";
import { Caution, carefulLimit } from "../../../src/lanes/caution.ts";

describe("messages whose owners have died", () => {
  test("are read as ever after one death, one at a time after two", () => {
    expect([0, 1, 2, 9].map((crashes) => carefulLimit(crashes, 0))).toEqual([undefined, undefined, 1, 1]);
  });

  test("are taken in larger numbers as they go well, so that deaths of other causes do not make it slow", () => {
    const limits = [0, 15, 16, 79, 80, 335, 336].map((tried) => carefulLimit(5, tried));
    expect(limits).toEqual([1, 1, 64, 64, 256, 256, undefined]);
  });
});

test("deaths that were forgotten do not hide others that come later", () => {
  const part = (from: number, crashes: number) => {
    return { crashes, lanes: Array.from({ length: 32 }, (_, lane) => from + lane) };
  };
  const [first, second] = [part(0, 1), part(32, 1)];
  const caution = new Caution<typeof first>();
  caution.load([first], [], 0);
  caution.settled("new", 16, 1);
  expect(caution.isProven(first, 2)).toBe(true);
  caution.clear(first);
  caution.load([{ ...first, crashes: 0 }, second], [], 1);
  expect(caution.isProven(second, 2)).toBe(false);
  caution.settled("new", 16, 3);
  expect(caution.isProven(second, 4)).toBe(true);
});
