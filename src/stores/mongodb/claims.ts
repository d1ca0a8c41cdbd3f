import type { Limit } from "../../lanes/lane-port.ts";
import type { ClusterTime } from "./cluster-time.ts";
import type { Hold } from "./lease.ts";
import type { Document } from "./mongodb-client.ts";
import { sizeOf, type StoredMessage, type Waits } from "./mongodb-document.ts";
import type { Table } from "./table.ts";

/** The last insert of a page that came by the change stream. */
export interface StreamEnd {
  readonly time: ClusterTime;
}

/** Streams of a relay as a condition; a relay of all streams leaves what inboxes have stored to their own. */
export function streamsFilter(streams: readonly string[] | null): Document {
  return { stream: streams === null ? { $not: /^inbox\./ } : { $in: streams } };
}

/** How often a read is tried again that others' commits got in the way of. */
const LOOKS = 3;

/**
 * The first documents that are ready, in order and without a gap within any key. A read is no snapshot: a commit may
 * land behind it while a later one of the same key is still to come, and is seen. So it looks again at what is there up
 * to the last one, and goes only as far as both looks agree.
 */
export async function readReady(
  outbox: Table,
  lanes: readonly number[],
  streams: readonly string[] | null,
  limit: Limit,
): Promise<Document[]> {
  const filter = readyFilter(lanes, streams);
  for (let look = 1; ; look++) {
    const documents = await readUpTo(outbox, filter, limit, { hint: "txbox_ready" });
    const last = documents.at(-1);
    if (last === undefined) return documents;
    const seen = new Set(documents.map(({ _id }) => String(_id)));
    const there = await outbox.find(
      { ...filter, position: { $lte: last["position"] } },
      { projection: { _id: 1, position: 1 }, hint: "txbox_ready", batchSize: documents.length + 1000 },
    );
    const missed = there.filter(({ _id }) => !seen.has(String(_id))).map(({ position }) => Number(position));
    if (missed.length === 0) return documents;
    const upTo = Math.min(...missed);
    // Positions rise within a key: of several with the same one, none comes behind another.
    const safe = documents.filter(({ position }) => Number(position) <= upTo);
    if (safe.length > 0 || look === LOOKS) return safe;
  }
}

export function readUpTo(outbox: Table, filter: Document, limit: Limit, by: Document = {}): Promise<Document[]> {
  let bytes = 0;
  const options = { sort: { position: 1 }, limit: limit.messages, batchSize: limit.messages + 1, ...by };
  return outbox.read(filter, options, (document) => (bytes += sizeOf(document)) >= limit.bytes);
}

/** New messages of these lanes and streams. */
export function readyFilter(lanes: readonly number[], streams: readonly string[] | null): Document {
  return { waits: "ready" satisfies Waits, lane: { $in: lanes }, ...streamsFilter(streams) };
}

export interface ClaimOptions extends Hold {
  from: "ready" | "parked";
  alone: boolean;
  token: string;
}

/**
 * Claims documents for an owner with one token, repeating on the server what made them claimable: new, or failed and
 * due. How many: fewer when that no longer holds for each of them, or when it came too late for the lease.
 */
export async function claimDocuments(
  outbox: Table,
  ids: readonly unknown[],
  { relay, owner, leaseUntil, fence, from, alone, token }: ClaimOptions,
): Promise<number> {
  const inTime = { $lt: ["$$NOW", fence.until] };
  // What has not failed waits for others only, whatever the clock of its writer said.
  const due = { $or: [{ $ne: ["$status", "failed"] }, { $lte: ["$next_retry_at", "$$NOW"] }] };
  const claimable =
    from === "ready"
      ? { waits: from, status: "new", $expr: inTime }
      : { waits: from, status: { $in: ["new", "failed"] }, $expr: { $and: [inTime, due] } };
  const claimed = await outbox.updateMany(
    { _id: { $in: ids }, ...claimable },
    {
      $set: {
        status: "processing",
        relay,
        lease_owner: owner,
        lease_until: leaseUntil,
        lease_token: token,
        ...(alone ? { alone: true } : {}),
      },
      $unset: { waits: 1 },
    },
    { maxTimeMS: fence.maxTimeMS },
  );
  return claimed.matchedCount;
}

/** Changes a message that is tried alone; false when it is no longer this claim's. */
export async function whileAlone(outbox: Table, { ref, token }: StoredMessage, change: Document): Promise<boolean> {
  const filter = { _id: ref, lease_token: token, status: "processing" };
  return (await outbox.updateOne(filter, change)).matchedCount > 0;
}
