import type { FetchedPartition } from "./kafka-client.ts";
import type { KafkaRecord } from "./kafka-envelope.ts";

const TRANSACTIONAL = 1 << 4;
const CONTROL = 1 << 5;
const ABORT = 0;

export interface CommittedRecords {
  readonly records: KafkaRecord[];
  /** Where the next fetch begins: past everything looked at, markers included. */
  readonly next: bigint;
  /** Leader epoch of the last that was looked at. */
  readonly epoch: number;
}

/** The place that was asked for. */
export interface FetchedFrom {
  readonly topic: string;
  readonly topicId: string;
  readonly next: bigint;
  readonly epoch: number;
}

/**
 * What a fetch with read_committed brought, from the place asked for on, without the records of aborted transactions. The
 * broker names those by producer and first offset; each ends at that producer's next abort marker. The client's own
 * filter forgets all but one per producer, and those whose marker is yet to come.
 */
export function committedRecords(from: FetchedFrom, fetched: FetchedPartition): CommittedRecords {
  const { topic, topicId } = from;
  const aborted = [...(fetched.abortedTransactions ?? [])].sort((a, b) => Number(a.firstOffset - b.firstOffset));
  const aborting = new Set<bigint>();
  const records: KafkaRecord[] = [];
  let [known, next, epoch] = [0, from.next, from.epoch];
  for (const batch of fetched.records ?? []) {
    const last = batch.firstOffset + BigInt(batch.lastOffsetDelta);
    for (; known < aborted.length && aborted[known]!.firstOffset <= last; known++) {
      aborting.add(aborted[known]!.producerId);
    }
    if (last >= next) {
      next = last + 1n;
      epoch = batch.partitionLeaderEpoch;
    }
    if ((batch.attributes & CONTROL) !== 0) {
      if (markerOf(batch.records[0]?.key) === ABORT) aborting.delete(batch.producerId);
      continue;
    }
    if ((batch.attributes & TRANSACTIONAL) !== 0 && aborting.has(batch.producerId)) continue;
    for (const { offsetDelta, key, value, headers } of batch.records) {
      const offset = batch.firstOffset + BigInt(offsetDelta);
      if (offset < from.next) continue;
      const place = { topic, topicId, partition: fetched.partitionIndex, offset, epoch: batch.partitionLeaderEpoch };
      records.push({ ...place, key, value, headers });
    }
  }
  return { records, next, epoch };
}

/** A control record's key: version, then type, two bytes each. */
function markerOf(key: Buffer | null | undefined): number | undefined {
  return key == null || key.length < 4 ? undefined : key.readInt16BE(2);
}
