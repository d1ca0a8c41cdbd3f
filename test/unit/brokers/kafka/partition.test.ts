import { describe, expect, test } from "vitest";
import { partitionOf } from "../../../../src/brokers/kafka/partition.ts";

/** From the tests of Kafka's Java client: hashes by key. */
const JAVA: readonly [key: string, hash: number][] = [
  ["21", -973932308],
  ["foobar", -790332482],
  ["a-little-bit-long-string", -985981536],
  ["a-little-bit-longer-string", -1486304829],
  ["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971],
  ["abc", 479470107],
];

describe("the partition of a key", () => {
  test.each(JAVA)("of %s is the one that the Java client chooses", (key, hash) => {
    for (const count of [1, 3, 6, 100, 2 ** 31])
      expect(partitionOf(Buffer.from(key), count)).toBe((hash & 0x7fffffff) % count);
  });

  test("is never negative, for keys of any length", () => {
    for (let length = 0; length < 20; length++) {
      const partition = partitionOf(Buffer.alloc(length, 0xff), 7);
      expect(partition).toBeGreaterThanOrEqual(0);
      expect(partition).toBeLessThan(7);
    }
  });
});
