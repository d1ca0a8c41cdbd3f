import type { RelayInfo } from "../../core/contracts.ts";
import { dueTime } from "../../core/due-time.ts";
import { LANES } from "../../core/lane.ts";
import { streamsFilter } from "./claims.ts";
import type { Document } from "./mongodb-client.ts";
import { isTimeExpired } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { viewOf, type RelayView } from "./mongodb-ownership.ts";

/** A backlog above this is called an estimate. */
const EXACT = 10_000;
/** So many documents that are ready are counted for all relays together. */
const COUNTED = 200_000;
const ALL_LANES = Array.from({ length: LANES }, (_, lane) => lane);

/** A look for the oldest document of a relay takes no longer. */
const LOOK_MS = 2000;

/** How many documents of one kind a relay has. */
interface Pile {
  count: number;
  /** Of the first in order. */
  first: unknown;
  keys: number;
}

/**
 * State of every relay, in seven commands, from the indexes over open work: however many documents are done, none of them
 * is looked at. Where more is ready than is counted, each relay costs a command more.
 */
export async function relayFigures(
  tables: Tables,
  readyNow: Promise<Ready> = readyByStream(tables),
): Promise<RelayInfo[]> {
  const [relays, ready, parked, held, dead] = await Promise.all([
    tables.relays.aggregate([{ $set: { at: "$$NOW" } }, { $sort: { _id: 1 } }]),
    readyNow,
    parkedByRelay(tables),
    heldByRelay(tables),
    deadByRelay(tables),
  ]);
  const waited = await agesOf(
    tables,
    [...parked.values(), ...held.values()].map(({ first }) => first),
  );
  return Promise.all(
    relays.map(async (relay) => {
      const name = String(relay["_id"]);
      const view = viewOf(relay);
      const waiting = ready.piles.filter(({ stream }) => reads(view.streams, stream));
      const behind = [parked.get(name), held.get(name)].filter((pile) => pile !== undefined);
      const readyCount = waiting.reduce((sum, { count }) => sum + count, 0);
      const oldestReady = ready.cut ? await oldestReadyAge(tables, view.streams) : null;
      const ages = [
        ...waiting.map(({ ageMs }) => ageMs),
        ...behind.flatMap(({ first }) => waited.get(String(first)) ?? []),
        ...(oldestReady === null ? [] : [oldestReady]),
      ];
      return {
        name,
        streams: view.streams,
        paused: view.paused,
        lanes: lanesByOwner(view),
        published: BigInt(view.published),
        pending: behind.reduce(
          (sum, { count }) => sum + count,
          // Something waits, or it is not known: never nothing.
          oldestReady === null ? readyCount : Math.max(1, readyCount),
        ),
        pendingEstimated: readyCount > EXACT || ready.cut,
        oldestPendingAgeMs: ages.length === 0 ? null : ages.reduce((oldest, age) => Math.max(oldest, age), 0),
        parked: parked.get(name)?.count ?? 0,
        blockedKeys: parked.get(name)?.keys ?? 0,
        dead: dead.get(name)?.count ?? 0,
      };
    }),
  );
}

/** Whether a relay with these streams has this one; without any it has all but those of inboxes. */
export function reads(streams: readonly string[] | null, stream: string): boolean {
  return streams?.includes(stream) ?? !stream.startsWith("inbox.");
}

export interface ReadyPile {
  stream: string;
  count: number;
  /** Of the oldest. */
  ageMs: number;
}

export interface Ready {
  piles: readonly ReadyPile[];
  /** More is ready than was counted: of other lanes, and perhaps of other streams. */
  cut: boolean;
}

/** A ready document has no relay yet: it counts for the relay that has its stream. */
export async function readyByStream(tables: Tables, limit: number = COUNTED): Promise<Ready> {
  const rows = await tables.outbox.aggregate(
    [
      { $match: { waits: "ready", lane: { $in: ALL_LANES } } },
      { $limit: limit + 1 },
      // All of it is in the index.
      { $project: { _id: 1, stream: 1, position: 1 } },
      { $group: { _id: "$stream", count: { $sum: 1 }, first: FIRST } },
    ],
    { hint: "txbox_ready" },
  );
  const ages = await agesOf(
    tables,
    rows.map((row) => firstOf(row)),
  );
  const piles = rows.flatMap((row) => {
    const { _id: stream, count } = row;
    return typeof stream === "string"
      ? [{ stream, count: count as number, ageMs: ages.get(String(firstOf(row))) ?? 0 }]
      : [];
  });
  return { piles, cut: rows.reduce((sum, { count }) => sum + Number(count), 0) > limit };
}

/**
 * How long the oldest document that is ready for a relay has been due; null when there is none. Where that takes too long to
 * find out, for all that lies before it: the oldest document of any stream.
 */
async function oldestReadyAge(tables: Tables, streams: readonly string[] | null): Promise<number | null> {
  const oldest = async (filter: Document, options: Document): Promise<number | null> => {
    const all = { waits: "ready", lane: { $in: ALL_LANES }, ...filter };
    const fields = { sort: { position: 1 }, projection: { _id: 1 }, hint: "txbox_ready" };
    const found = await tables.outbox.findOne(all, { ...fields, ...options });
    if (found === null) return null;
    return (await agesOf(tables, [found["_id"]])).get(String(found["_id"])) ?? 0;
  };
  try {
    return await oldest(streamsFilter(streams), { maxTimeMS: LOOK_MS });
  } catch (error) {
    if (!isTimeExpired(error)) throw error;
    return oldest({}, {});
  }
}

/** For how long documents have been due, in ms, by their ids. */
async function agesOf({ outbox }: Tables, ids: readonly unknown[]): Promise<Map<string, number>> {
  const wanted = ids.filter((id) => id !== undefined);
  if (wanted.length === 0) return new Map();
  const documents = await outbox.aggregate([
    { $match: { _id: { $in: wanted } } },
    { $project: { message_id: 1, created_at: 1, at: "$$NOW" } },
  ]);
  return new Map(
    documents.flatMap(({ _id, message_id, created_at, at }): [string, number][] => {
      if (!(created_at instanceof Date)) return [];
      const now = (at as Date).getTime();
      return [[String(_id), Math.max(0, now - dueTime(String(message_id ?? _id), created_at.getTime(), now))]];
    }),
  );
}

/** The first of a group in the order of positions. */
const FIRST = { $min: { position: "$position", id: "$_id" } };
const firstOf = ({ first }: Document): unknown => (first as { id?: unknown } | null)?.id;

/** Keys with parked messages, and those that a dead letter holds though nothing waits behind it yet. */
async function parkedByRelay({ outbox, dead }: Tables): Promise<Map<string, Pile>> {
  const fields = { relay: 1, stream: 1, key: { $ifNull: ["$key", null] } };
  const rows = await outbox.aggregate(
    [
      { $match: { waits: "parked" } },
      { $project: { ...fields, parked: { $literal: 1 }, place: { position: "$position", id: "$_id" } } },
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
          first: { $min: "$place" },
        },
      },
      {
        $group: {
          _id: "$_id.relay",
          count: { $sum: "$count" },
          // Messages without a key wait each on its own.
          keys: { $sum: { $cond: [{ $eq: ["$_id.key", null] }, "$count", 1] } },
          first: { $min: "$first" },
        },
      },
    ],
    { hint: "txbox_parked", allowDiskUse: true },
  );
  return byRelay(rows);
}

async function heldByRelay({ outbox }: Tables): Promise<Map<string, Pile>> {
  const rows = await outbox.aggregate(
    [{ $match: { status: "processing" } }, { $group: { _id: "$relay", count: { $sum: 1 }, first: FIRST } }],
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
    rows.map((row) => [
      String(row["_id"]),
      { count: Number(row["count"]), first: firstOf(row), keys: Number(row["keys"] ?? 0) },
    ]),
  );
}

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
      ...(member?.max_parked === undefined ? {} : { maxParked: member.max_parked }),
    };
  });
}
