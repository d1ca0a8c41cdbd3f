import { describe, expect, test } from "vitest";
import { BatchResults, groupByKey, PUBLISHED } from "../../../src/core/batch-results.ts";
import type { PublishResult } from "../../../src/core/contracts.ts";

const of = (...keys: (string | null)[]) => keys.map((key) => ({ stream: "s", key }));
const FAILED: PublishResult = { status: "failed", error: new Error("no") };
const statuses = (results: readonly PublishResult[]) => results.map(({ status }) => status);

describe("the results of a batch", () => {
  test("behind a message that did not go through, its key is held and nothing else", () => {
    const results = new BatchResults([...of("a", "b", "a", null, "a"), { stream: "other", key: "a" }]);
    results.set(2, FAILED);
    expect([0, 1, 2, 3, 4, 5].map((index) => results.isHeld(index))).toEqual([false, false, false, false, true, false]);
    expect(statuses(results.all())).toEqual([
      "unavailable",
      "unavailable",
      "failed",
      "unavailable",
      "held",
      "unavailable",
    ]);
  });

  test("the first failure of a key counts, in whatever order failures are told", () => {
    const results = new BatchResults(of("a", "a", "a"));
    results.set(2, FAILED);
    results.set(0, FAILED);
    expect(results.isHeld(1)).toBe(true);
    expect(results.isOpen(1)).toBe(false);
  });

  test("messages without a key hold nothing back", () => {
    const results = new BatchResults(of(null, null));
    results.set(0, FAILED);
    results.set(1, PUBLISHED);
    expect(results.hasFailures).toBe(false);
    expect(statuses(results.all())).toEqual(["failed", "published"]);
  });
});

test("messages are grouped by stream and key, in order", () => {
  expect(groupByKey([...of("a", null, "b", "a", null), { stream: "t", key: "a" }])).toEqual([
    [0, 3],
    [1],
    [2],
    [4],
    [5],
  ]);
});
