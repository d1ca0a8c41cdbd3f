import type { Fence } from "./lease.ts";
import { streamsFilter } from "./claims.ts";
import type { Document } from "./mongodb-client.ts";
import { isTimeExpired } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { nextPositions, type Positions } from "./mongodb-sequence.ts";

const BATCH = 1000;
/** A writer that has a key's sequence in its open transaction is not waited for longer than this. */
const BUSY_KEY_MS = 50;

export interface ScheduleOptions {
  lanes: readonly number[];
  streams: readonly string[] | null;
  fence: () => Fence;
}

type Scheduled = Document & { stream: string; key: string | null };

/** Time until the next scheduled message of these lanes is due, in ms; undefined when there is none. */
export async function nextScheduledMs(
  { outbox }: Tables,
  options: Omit<ScheduleOptions, "fence">,
): Promise<number | undefined> {
  const [next] = await outbox.aggregate([
    { $match: { waits: "later", lane: { $in: options.lanes }, ...streamsFilter(options.streams) } },
    { $sort: { next_retry_at: 1, position: 1 } },
    { $limit: 1 },
    { $project: { in: { $dateDiff: { startDate: "$$NOW", endDate: "$next_retry_at", unit: "millisecond" } } } },
  ]);
  return next === undefined ? undefined : Number(next["in"]);
}

/**
 * Scheduled messages whose time has come get their positions, in the order of their times, and are ready. The caller
 * sees to it that nothing is claimed meanwhile: what was enqueued later must not overtake them.
 */
export async function promote(tables: Tables, options: ScheduleOptions): Promise<void> {
  for (;;) {
    const due = (await tables.outbox.find(
      {
        waits: "later",
        lane: { $in: options.lanes },
        ...streamsFilter(options.streams),
        $expr: { $lte: ["$next_retry_at", "$$NOW"] },
      },
      { sort: { next_retry_at: 1, position: 1 }, limit: BATCH, projection: { stream: 1, key: 1 } },
    )) as Scheduled[];
    if (due.length === 0) return;
    const moved = await promoteAll(tables, due, options);
    if (due.length < BATCH || !moved) return;
  }
}

async function promoteAll(tables: Tables, due: readonly Scheduled[], { fence }: ScheduleOptions): Promise<boolean> {
  try {
    const { maxTimeMS } = fence();
    await move(tables, due, await nextPositions(tables.sequences, due, undefined, { maxTimeMS }), fence());
    return true;
  } catch (error) {
    if (!isTimeExpired(error)) throw error;
  }
  // A sequence is held by an open transaction: the others need not wait for it.
  const groups = Map.groupBy(due, ({ stream, key }) => (key === null ? null : `${stream}\0${key}`));
  for (const group of groups.values()) {
    try {
      const positions = await nextPositions(tables.sequences, group, undefined, { maxTimeMS: BUSY_KEY_MS });
      await move(tables, group, positions, fence());
    } catch (error) {
      if (!isTimeExpired(error)) throw error;
    }
  }
  return false;
}

async function move(tables: Tables, due: readonly Scheduled[], { first }: Positions, fence: Fence): Promise<void> {
  const inTime = { $expr: { $lt: ["$$NOW", fence.until] } };
  const operations = due.map(({ _id }, i) => ({
    updateOne: {
      filter: { _id, waits: "later", ...inTime },
      update: { $set: { waits: "ready", position: BigInt(first + i) } },
    },
  }));
  await tables.outbox.bulkWrite(operations, { ordered: true, maxTimeMS: fence.maxTimeMS });
}
