import { expect, it } from "vitest";
import type { Outcome } from "../../../src/core/contracts.ts";
import { RetrySize } from "../../../src/lanes/retry-size.ts";

const FAILED: Outcome = { status: "retry", error: "no", attempts: 1, delayMs: 1 };
const PUBLISHED: Outcome = { status: "published" };

it("claims few keys while they fail at once, and many when they go through or take long", () => {
  const size = new RetrySize(256);
  expect(size.keys).toBe(256);
  size.note([FAILED, FAILED, PUBLISHED], 1);
  expect(size.keys).toBe(32);
  size.note([FAILED, FAILED], 50);
  expect(size.keys).toBe(256);
  size.note([FAILED], 0);
  expect(size.keys).toBe(32);
  size.note([PUBLISHED, PUBLISHED, FAILED], 1);
  expect(size.keys).toBe(256);
});

it("never claims more than the store takes", () => {
  const size = new RetrySize(4);
  size.note([FAILED], 0);
  expect(size.keys).toBe(4);
});
