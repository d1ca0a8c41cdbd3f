import { describe, expect, test } from "vitest";
import { committedRecords } from "../../../../src/brokers/kafka/committed-records.ts";
import type { FetchedBatch, FetchedPartition } from "../../../../src/brokers/kafka/kafka-client.ts";

const TRANSACTIONAL = 16;
const CONTROL = 32;

function batch(firstOffset: number, values: readonly string[], producer?: number): FetchedBatch {
  return {
    firstOffset: BigInt(firstOffset),
    lastOffsetDelta: values.length - 1,
    partitionLeaderEpoch: 1 + firstOffset,
    attributes: producer === undefined ? 0 : TRANSACTIONAL,
    producerId: BigInt(producer ?? -1),
    records: values.map((value, offsetDelta) => ({ offsetDelta, key: null, value: Buffer.from(value), headers: [] })),
  };
}

function marker(offset: number, producer: number, type: "commit" | "abort"): FetchedBatch {
  const key = Buffer.from([0, 0, 0, type === "abort" ? 0 : 1]);
  return {
    ...batch(offset, [""], producer),
    attributes: TRANSACTIONAL | CONTROL,
    records: [{ offsetDelta: 0, key, value: null, headers: [] }],
  };
}

function read(records: FetchedBatch[], aborted: readonly [producer: number, from: number][] = [], from = 0) {
  const fetched: FetchedPartition = {
    partitionIndex: 3,
    errorCode: 0,
    records,
    abortedTransactions: aborted.map(([producer, first]) => ({
      producerId: BigInt(producer),
      firstOffset: BigInt(first),
    })),
  };
  const asked = { topic: "t", topicId: "t-1", next: BigInt(from), epoch: 0 };
  const { records: got, next } = committedRecords(asked, fetched);
  return { values: got.map(({ offset, value }) => `${offset}:${String(value)}`), next };
}

describe("committed records", () => {
  test("all, when there are no transactions; the next fetch begins past the last", () => {
    expect(read([batch(0, ["a", "b"]), batch(2, ["c"])])).toEqual({ values: ["0:a", "1:b", "2:c"], next: 3n });
  });

  test("a batch that begins before the position gives only what follows it", () => {
    expect(read([batch(0, ["a", "b", "c"])], [], 2)).toEqual({ values: ["2:c"], next: 3n });
  });

  test("one producer aborts again and again", () => {
    const log = [0, 1, 2, 3].flatMap((n) => [
      batch(n * 2, [`v${n}`], 7),
      marker(n * 2 + 1, 7, n % 2 === 0 ? "abort" : "commit"),
    ]);
    expect(
      read(log, [
        [7, 0],
        [7, 4],
      ]),
    ).toEqual({ values: ["2:v1", "6:v3"], next: 8n });
  });

  test("the marker of an aborted transaction may be in the next fetch", () => {
    expect(read([batch(0, ["a"]), batch(1, ["b"], 7)], [[7, 1]])).toEqual({ values: ["0:a"], next: 2n });
    expect(read([batch(2, ["c"], 7), marker(3, 7, "abort"), batch(4, ["d"], 7)], [[7, 1]], 2)).toEqual({
      values: ["4:d"],
      next: 5n,
    });
  });

  test("producers that interleave are told apart, and plain records go through", () => {
    const log = [
      batch(0, ["a1"], 1),
      batch(1, ["b1"], 2),
      batch(2, ["plain"]),
      marker(3, 1, "abort"),
      batch(4, ["a2"], 1),
      batch(5, ["b2"], 2),
      marker(6, 2, "commit"),
      marker(7, 1, "commit"),
    ];
    expect(read(log, [[1, 0]]).values).toEqual(["1:b1", "2:plain", "4:a2", "5:b2"]);
  });

  test("a fetch that begins at an abort marker, and batches that compaction has emptied", () => {
    expect(read([marker(5, 7, "abort"), batch(6, ["x"], 7)], [], 5)).toEqual({ values: ["6:x"], next: 7n });
    const empty = { ...batch(7, ["", ""], 7), records: [] };
    expect(read([empty, { ...marker(9, 7, "commit"), records: [] }], [], 7)).toEqual({ values: [], next: 10n });
  });

  test("nothing at all leaves the position where it is", () => {
    expect(read([], [], 4)).toEqual({ values: [], next: 4n });
  });

  test("names each record for good: by topic id and leader epoch; the last batch gives the epoch of the next fetch", () => {
    const asked = { topic: "t", topicId: "t-1", next: 1n, epoch: 0 };
    const fetched = { partitionIndex: 3, errorCode: 0, records: [batch(0, ["a", "b"]), marker(2, 7, "commit")] };
    const { records, epoch } = committedRecords(asked, fetched);
    expect(records).toMatchObject([{ topic: "t", topicId: "t-1", partition: 3, offset: 1n, epoch: 1 }]);
    expect(epoch).toBe(3);
    expect(committedRecords(asked, { partitionIndex: 3, errorCode: 0, records: [] }).epoch).toBe(0);
  });
});
