import { expect, test } from "vitest";
import { formatTable } from "../../../src/cli/format-table.ts";
import { formatMs, plural } from "../../../src/cli/format-values.ts";

test("columns are as wide as their contents, numbers to the right, long texts cut", () => {
  const rows = [
    { name: "a", n: 1234, note: "two\nlines" },
    { name: "longer", n: 7n, note: null },
    { name: "c", n: undefined, note: "0123456789abc" },
  ];
  const table = formatTable(rows, [
    { title: "name", value: ({ name }) => name },
    { title: "n", align: "right", value: ({ n }) => n },
    { title: "note", max: 10, value: ({ note }) => note },
  ]);
  expect(table).toBe(
    [
      "name        n  note",
      "──────  ─────  ──────────",
      "a       1,234  two lines",
      "longer      7  –",
      "c           –  012345678…",
      "",
    ].join("\n"),
  );
});

test.each([
  [-5, "0 ms"],
  [850, "850 ms"],
  [1500, "1.5 s"],
  [90_000, "90 s"],
  [600_000, "10 min"],
  [36_000_000, "10 h"],
  [864_000_000, "10 days"],
])("%i ms is %s", (ms, text) => expect(formatMs(ms)).toBe(text));

test("plural", () => {
  expect([plural(0, "order"), plural(1, "order"), plural(1000n, "order"), plural(2, "delivery", "deliveries")]).toEqual(
    ["0 orders", "1 order", "1,000 orders", "2 deliveries"],
  );
});

test("cells hold nothing that a terminal obeys", () => {
  const table = formatTable([{ name: "a\u001B[2J\u009B\u202E\nb" }], [{ title: "name", value: ({ name }) => name }]);
  expect(table.split("\n")[2]).toBe("a\\u001B[2J\\u009B\\u202E b");
});
