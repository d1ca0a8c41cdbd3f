import type { RelayInfo, StoreFigures } from "../../core/contracts.ts";
import type { Document } from "./mongodb-client.ts";
import { readActivity } from "./mongodb-history.ts";
import type { Tables } from "./mongodb-names.ts";
import { readyByStream, reads, relayFigures, type ReadyPile } from "./relay-figures.ts";
import type { Table } from "./table.ts";

/** Scheduled messages are counted up to here. */
const COUNTED = 10_000;
/** Receipts have no index by status: failed ones are counted while there are no more receipts than this. */
const COUNTED_RECEIPTS = 100_000;

/** Figures of the whole store, from the indexes over open work and what the server knows of its collections. */
export async function storeFigures(tables: Tables): Promise<StoreFigures> {
  const ready = readyByStream(tables);
  const [relays, { piles }, activity, scheduled, next, log, inbox] = await Promise.all([
    relayFigures(tables, ready),
    ready,
    readActivity(tables),
    tables.outbox.count({ waits: "later" }, { limit: COUNTED + 1, hint: "txbox_later" }),
    tables.outbox.aggregate(
      [{ $match: { waits: "later" } }, { $group: { _id: null, next: { $min: "$next_retry_at" } } }],
      { hint: "txbox_later" },
    ),
    storageOf(tables.outbox),
    storageOf(tables.inbox),
  ]);
  return {
    // Done messages are deleted by their own time: no relay can hold that back.
    relays: relays.map((relay) => ({ ...relay, holdsBackRetention: false })),
    activity,
    scheduled: {
      count: scheduled,
      estimated: scheduled > COUNTED,
      nextAt: (next[0]?.["next"] as Date | undefined) ?? null,
    },
    unread: unread(relays, piles),
    unarchivedSegments: 0,
    logBytes: log.bytes,
    receiptBytes: inbox.bytes,
    failedReceipts: inbox.count > COUNTED_RECEIPTS ? null : await failedReceipts(tables),
  };
}

function unread(relays: readonly RelayInfo[], piles: readonly ReadyPile[]): StoreFigures["unread"] {
  const alone = piles.filter(({ stream }) => !relays.some(({ streams }) => reads(streams, stream)));
  return alone
    .map(({ stream, ageMs }) => ({ stream, oldestAgeMs: ageMs }))
    .toSorted((a, b) => b.oldestAgeMs - a.oldestAgeMs);
}

/** A document for each shard that has a part of it. */
export async function storageOf(table: Table): Promise<{ bytes: number; count: number }> {
  const rows = await table.aggregate([{ $collStats: { storageStats: {} } }]);
  const sum = (field: string) =>
    rows.reduce((total, { storageStats }) => total + Number((storageStats as Document)[field] ?? 0), 0);
  return { bytes: sum("storageSize") + sum("totalIndexSize"), count: sum("count") };
}

export async function failedReceipts({ inbox }: Tables): Promise<{ consumer: string; count: number }[]> {
  const rows = await inbox.aggregate([
    { $match: { status: "failed" } },
    { $group: { _id: "$_id.consumer", count: { $sum: 1 } } },
    { $sort: { _id: 1 } },
  ]);
  return rows.map(({ _id, count }) => ({ consumer: String(_id), count: Number(count) }));
}
