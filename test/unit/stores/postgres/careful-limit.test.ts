import { describe, expect, test } from "vitest";
import { cursorOf } from "../../../../src/stores/postgres/postgres-cursor.ts";
import { carefulLimit } from "../../../../src/stores/postgres/settler.ts";

function cursor(crashes: number, tried: number): Parameters<typeof carefulLimit>[0] {
  const row = ["1", "1", "1", "1:1:", null, null, null, "0", "0", String(crashes), null, "0"];
  return Object.assign(cursorOf(row, [0]), { tried });
}

describe("a cursor whose owners have died", () => {
  test("is read as ever after one death, one message at a time after two", () => {
    expect([0, 1, 2, 9].map((crashes) => carefulLimit(cursor(crashes, 0)))).toEqual([undefined, undefined, 1, 1]);
  });

  test("is trusted with more as messages go well, so that deaths of other causes do not make it slow", () => {
    expect([0, 15, 16, 79, 80, 335].map((tried) => carefulLimit(cursor(5, tried)))).toEqual([1, 1, 64, 64, 256, 256]);
  });
});
