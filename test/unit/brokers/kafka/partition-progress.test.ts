import { describe, expect, test } from "vitest";
import { PartitionProgress } from "../../../../src/brokers/kafka/partition-progress.ts";

const begin = (offset: bigint): PartitionProgress =>
  new PartitionProgress("t", 0, { offset, epoch: 1, topicId: "first" });

describe("the progress of a partition", () => {
  test("an offset counts only when all below are done, with the epoch of the record below it", () => {
    const progress = begin(10n);
    expect(progress.position).toEqual({ offset: 10n, epoch: 1, topicId: "first" });
    const [a, b, c] = [progress.take(10n, 2), progress.take(11n, 3), progress.take(13n, 3)];
    expect(progress.position).toMatchObject({ offset: 10n, epoch: 1 });
    progress.done(b);
    progress.done(c);
    expect(progress.position.offset).toBe(10n);
    expect(progress.isToCommit).toBe(false);
    progress.done(a);
    expect(progress.position).toMatchObject({ offset: 14n, epoch: 3 });
    expect(progress.isToCommit).toBe(true);
  });

  test("what was read past the last record counts when nothing is pending", () => {
    const progress = begin(0n);
    const taken = progress.take(0n, 2);
    progress.readTo(5n, 4);
    expect(progress.position).toMatchObject({ offset: 0n, epoch: 1 });
    progress.done(taken);
    expect(progress.position).toMatchObject({ offset: 5n, epoch: 4 });
  });

  test("after a cut it goes back: what was taken above it counts no more, what is below still holds it", () => {
    const progress = begin(0n);
    const [below, above] = [progress.take(0n, 2), progress.take(1n, 2)];
    progress.committed = { offset: 2n, epoch: 2, topicId: "first" };
    progress.restart({ offset: 1n, epoch: 2, topicId: "first" });
    expect(progress.position.offset).toBe(0n);
    const again = progress.take(1n, 3);
    progress.done(above);
    progress.done(below);
    expect(progress.position).toMatchObject({ offset: 1n, epoch: 2 });
    expect(progress.isToCommit).toBe(true);
    progress.done(again);
    expect(progress.position).toMatchObject({ offset: 2n, epoch: 3 });
  });

  test("nothing that was taken from a topic counts for one that was made in its place", () => {
    const progress = begin(0n);
    const old = progress.take(0n, 2);
    progress.take(1n, 2);
    progress.restart({ offset: 0n, epoch: -1, topicId: "second" });
    expect(progress.isToCommit).toBe(true);
    progress.take(0n, 0);
    progress.done(old);
    expect(progress.position).toEqual({ offset: 0n, epoch: -1, topicId: "second" });
  });
});
