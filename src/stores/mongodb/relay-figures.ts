import type { RelayInfo } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import type { Document } from "./mongodb-client.ts";
import type { Tables } from "./mongodb-names.ts";
import { viewOf, type RelayView } from "./mongodb-ownership.ts";

/** A backlog above this is called an estimate. */
const EXACT = 10_000;
/** So many documents that are ready are counted for all relays together. */
const COUNTED = 200_000;
const ALL_LANES = Array.from({ length: LANES }, (_, lane) => lane);

/** How many documents of one kind a relay has, and when the oldest of them was created. */
interface Pile {
  count: number;
  created: Date | undefined;
  keys: number;
}

const NOTHING: Pile = { count: 0, created: undefined, keys: 0 };

/**
 * State of every relay, in six commands however many relays there are, from the indexes over open work: however many
 * documents are done, none of them is looked at.
 */
export async function relayFigures(tables: Tables): Promise<RelayInfo[]> {
  const [relays, ready, parked, held, dead] = await Promise.all([
    tables.relays.aggregate([{ $set: { at: "$$NOW" } }, { $sort: { _id: 1 } }]),
    readyByStream(tables),
    parkedByRelay(tables),
    heldByRelay(tables),
    deadByRelay(tables),
  ]);
  return relays.map((relay) => {
    const name = String(relay["_id"]);
    const view = viewOf(relay);
    const waiting = ready.filter(({ stream }) => view.streams?.includes(stream) ?? !stream.startsWith("inbox."));
    const own = [...waiting, parked.get(name) ?? NOTHING, held.get(name) ?? NOTHING];
    const ages = own.flatMap(({ created }) => (created === undefined ? [] : [view.at.getTime() - created.getTime()]));
    const readyCount = waiting.reduce((sum, { count }) => sum + count, 0);
    return {
      name,
      streams: view.streams,
      paused: view.paused,
      lanes: lanesByOwner(view),
      published: BigInt(view.published),
      pending: own.reduce((sum, { count }) => sum + count, 0),
      pendingEstimated: readyCount > EXACT || ready.reduce((sum, { count }) => sum + count, 0) > COUNTED,
      oldestPendingAgeMs: ages.length === 0 ? null : ages.reduce((oldest, age) => Math.max(oldest, age), 0),
      parked: parked.get(name)?.count ?? 0,
      blockedKeys: parked.get(name)?.keys ?? 0,
      dead: dead.get(name)?.count ?? 0,
    };
  });
}

/** What is ready has no relay yet: it is that of the relay which has its stream. */
export async function readyByStream({ outbox }: Tables): Promise<(Pile & { stream: string })[]> {
  const first = { $min: { position: "$position", id: "$_id" } };
  const rows = await outbox.aggregate(
    [
      { $match: { waits: "ready", lane: { $in: ALL_LANES } } },
      { $limit: COUNTED + 1 },
      // All of it is in the index.
      { $project: { _id: 1, stream: 1, position: 1 } },
      { $group: { _id: "$stream", count: { $sum: 1 }, first } },
    ],
    { hint: "txbox_ready" },
  );
  const oldest = rows.map(({ first: place }) => (place as { id: unknown }).id);
  const documents = await outbox.find({ _id: { $in: oldest } }, { projection: { created_at: 1 } });
  const created = new Map(documents.map(({ _id, created_at }) => [String(_id), dateOf(created_at)]));
  return rows.flatMap(({ _id, count, first: place }) => {
    const pile = { count: count as number, created: created.get(String((place as { id: unknown }).id)), keys: 0 };
    return typeof _id === "string" ? [{ ...pile, stream: _id }] : [];
  });
}

/** Keys with parked messages, and those that a dead letter holds though nothing waits behind it yet. */
async function parkedByRelay({ outbox, dead }: Tables): Promise<Map<string, Pile>> {
  const fields = { relay: 1, stream: 1, key: { $ifNull: ["$key", null] }, created_at: 1 };
  const rows = await outbox.aggregate(
    [
      { $match: { waits: "parked" } },
      { $project: { ...fields, parked: { $literal: 1 } } },
      {
        $unionWith: {
          coll: dead.raw.collectionName,
          pipeline: [
            { $match: { relay: { $gt: "" }, blocks: true, state: "dead", key: { $gt: "" } } },
            { $project: { relay: 1, stream: 1, key: 1, parked: { $literal: 0 } } },
          ],
        },
      },
      {
        $group: {
          _id: { relay: "$relay", stream: "$stream", key: "$key" },
          count: { $sum: "$parked" },
          created: { $min: "$created_at" },
        },
      },
      {
        $group: {
          _id: "$_id.relay",
          count: { $sum: "$count" },
          // Messages without a key wait each on its own.
          keys: { $sum: { $cond: [{ $eq: ["$_id.key", null] }, "$count", 1] } },
          created: { $min: "$created" },
        },
      },
    ],
    { hint: "txbox_parked", allowDiskUse: true },
  );
  return byRelay(rows);
}

async function heldByRelay({ outbox }: Tables): Promise<Map<string, Pile>> {
  const rows = await outbox.aggregate(
    [
      { $match: { status: "processing" } },
      { $group: { _id: "$relay", count: { $sum: 1 }, created: { $min: "$created_at" } } },
    ],
    { hint: "txbox_processing" },
  );
  return byRelay(rows);
}

async function deadByRelay({ dead }: Tables): Promise<Map<string, Pile>> {
  const rows = await dead.aggregate(
    [
      { $match: { state: "dead" } },
      { $project: { _id: 0, relay: 1 } },
      { $group: { _id: "$relay", count: { $sum: 1 } } },
    ],
    { hint: "txbox_letters_of_relay" },
  );
  return byRelay(rows);
}

function byRelay(rows: readonly Document[]): Map<string, Pile> {
  return new Map(
    rows.map(({ _id, count, created, keys }) => [
      String(_id),
      { count: Number(count), created: dateOf(created), keys: Number(keys ?? 0) },
    ]),
  );
}

const dateOf = (value: unknown): Date | undefined => (value instanceof Date ? value : undefined);

function lanesByOwner({ lanes, members, at }: RelayView): RelayInfo["lanes"] {
  const groups = Map.groupBy(lanes, ({ owner }) => owner);
  return [...groups].map(([owner, those]) => {
    const member = members.find((one) => one.owner === owner);
    const until = member?.lease_until ?? new Date(Math.max(...those.map(({ freed_at }) => freed_at.getTime())));
    return {
      owner: owner === null ? null : owner.slice(0, owner.lastIndexOf("#")),
      lanes: those.length,
      leaseMs: until.getTime() - at.getTime(),
      epoch: BigInt(Math.max(...those.map(({ epoch }) => epoch))),
    };
  });
}
