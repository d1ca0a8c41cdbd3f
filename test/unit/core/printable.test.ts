import { expect, test } from "vitest";
import { printable, printableJson, printableLines } from "../../../src/core/printable.ts";

const HOSTILE = "a\u001B[31mb\u009B2Jc\u202Ed\u2066e\u0000f\u200Bg\uFEFFh\uD800i\u2028j\r\nk\tl\u{E0041}m";
const RAW = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;

test("a value becomes one line in which nothing is obeyed", () => {
  expect(printable(HOSTILE)).toBe("a\\u001B[31mb\\u009B2Jc\\u202Ed\\u2066e\\u0000f\\u200Bg h\\uD800i j k l\\u{E0041}m");
});

test("own lines and tabs stay", () => {
  expect(printableLines("a\n\tb\u001B\r\n")).toBe("a\n\tb\\u001B\\u000D\n");
});

test("JSON stays lossless", () => {
  const value = { [HOSTILE]: HOSTILE, plain: "Grüße, 世界 👨‍👩‍👧" };
  const text = printableJson(JSON.stringify(value, undefined, 2));
  expect(text.replaceAll("\n", "")).not.toMatch(RAW);
  expect(text).toContain("Grüße, 世界 👨‍👩‍👧");
  expect(JSON.parse(text)).toEqual(value);
});

test("ordinary text of any language stays as it is", () => {
  for (const text of ["Grüße", "世界", "שלום", "مرحبا", "👨‍👩‍👧", "a\\b"]) expect(printable(text)).toBe(text);
});
