import { describe, expect, test } from "vitest";
import { PartitionProgress } from "../../../../src/brokers/kafka/partition-progress.ts";

describe("the progress of a partition", () => {
  test("an offset counts only when all below are done", () => {
    const progress = new PartitionProgress("t", 0, 10n);
    expect(progress.position).toBe(10n);
    for (const offset of [10n, 11n, 13n]) progress.take(offset);
    expect(progress.position).toBe(10n);
    progress.done(11n);
    progress.done(13n);
    expect(progress.position).toBe(10n);
    progress.done(10n);
    expect(progress.position).toBe(14n);
  });

  test("what was read past the last record counts when nothing is pending", () => {
    const progress = new PartitionProgress("t", 0, 0n);
    progress.take(0n);
    progress.next = 5n;
    expect(progress.position).toBe(0n);
    progress.done(0n);
    expect(progress.position).toBe(5n);
  });
});
