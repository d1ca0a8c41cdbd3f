import type { BlockedKeys } from "./blocked-keys.ts";
import type { Document } from "./mongodb-client.ts";
import type { Tables } from "./mongodb-names.ts";

export interface LoadOptions {
  relay: string;
  lanes: readonly number[];
  unordered: readonly string[];
  /** Monotonic time of a time of the server. */
  monotonicOf: (time: Date) => number;
}

/** What waits in these lanes: keys with parked messages, due when their first one is, and keys that a dead letter holds. */
export async function loadKeys(
  { outbox, dead }: Tables,
  keys: BlockedKeys,
  { relay, lanes, unordered, monotonicOf }: LoadOptions,
): Promise<void> {
  const missing = { $eq: [{ $ifNull: ["$key", null] }, null] };
  const solo = { $cond: [{ $or: [missing, { $in: ["$stream", { $literal: unordered }] }] }, "$_id", null] };
  const groups = await outbox.aggregate([
    { $match: { waits: "parked", relay, lane: { $in: lanes } } },
    { $sort: { lane: 1, stream: 1, key: 1, position: 1 } },
    {
      $group: {
        _id: { lane: "$lane", stream: "$stream", key: "$key", solo },
        parked: { $sum: 1 },
        status: { $first: "$status" },
        next: { $first: "$next_retry_at" },
      },
    },
  ]);
  for (const { _id, parked, status, next } of groups) {
    const { lane, stream, key, solo: alone } = _id as Document;
    keys.load({
      lane: lane as number,
      stream: String(stream),
      key: alone === null ? String(key) : null,
      solo: alone ?? undefined,
      dueAt: status === "failed" && next instanceof Date ? monotonicOf(next) : Number.NEGATIVE_INFINITY,
      held: false,
      parked: Number(parked),
    });
  }
  const holding = await dead.find({ relay, blocks: true, state: "dead", lane: { $in: lanes } });
  for (const { _id, lane, stream, key } of holding) {
    if (typeof key !== "string" || unordered.includes(String(stream))) continue;
    const known = keys.named(String(stream), key);
    if (known !== undefined) known.held = true;
    else {
      keys.load({
        lane: lane as number,
        stream: String(stream),
        key,
        solo: _id,
        dueAt: Number.NEGATIVE_INFINITY,
        held: true,
        parked: 0,
      });
    }
  }
}
