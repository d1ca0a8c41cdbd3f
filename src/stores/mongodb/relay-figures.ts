import type { RelayInfo } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import { streamsFilter } from "./claims.ts";
import type { Document } from "./mongodb-client.ts";
import type { Tables } from "./mongodb-names.ts";
import { viewOf, type RelayView } from "./mongodb-ownership.ts";

/** Up to here the backlog is counted exactly; then more roughly, up to the second one. */
const COUNT_CAP = 10_000;
const ROUGH_CAP = 100_000;
const ALL_LANES = Array.from({ length: LANES }, (_, lane) => lane);

/** State of every relay, from the indexes over open work: however many documents are done, none of them is looked at. */
export async function relayFigures(tables: Tables): Promise<RelayInfo[]> {
  const relays = await tables.relays.aggregate([{ $set: { at: "$$NOW" } }, { $sort: { _id: 1 } }]);
  return Promise.all(relays.map((relay) => figuresOf(tables, String(relay["_id"]), viewOf(relay))));
}

async function figuresOf({ outbox, dead }: Tables, name: string, view: RelayView): Promise<RelayInfo> {
  const ready = { waits: "ready", lane: { $in: ALL_LANES }, ...streamsFilter(view.streams) };
  const parked = { waits: "parked", relay: name };
  const processing = { status: "processing", relay: name };
  const [waiting, parkedCount, held, blockedKeys, deadCount, ages] = await Promise.all([
    outbox.count(ready, { limit: ROUGH_CAP, hint: "txbox_ready" }),
    outbox.count(parked, { hint: "txbox_parked" }),
    outbox.count(processing, { hint: "txbox_processing" }),
    countBlockedKeys({ outbox, dead }, name),
    dead.count({ state: "dead", relay: name }),
    Promise.all([ready, parked, processing].map((filter) => createdFirst(outbox, filter))),
  ]);
  const oldest = ages.flatMap((created) => (created === undefined ? [] : [view.at.getTime() - created.getTime()]));
  return {
    name,
    streams: view.streams,
    paused: view.paused,
    lanes: lanesByOwner(view),
    published: BigInt(view.published),
    pending: waiting + parkedCount + held,
    pendingEstimated: waiting > COUNT_CAP,
    oldestPendingAgeMs: oldest.length === 0 ? null : Math.max(0, ...oldest),
    parked: parkedCount,
    blockedKeys,
    dead: deadCount,
  };
}

async function createdFirst(outbox: Tables["outbox"], filter: Document): Promise<Date | undefined> {
  const first = await outbox.findOne(filter, { sort: { position: 1 }, projection: { created_at: 1 } });
  const created = first?.["created_at"];
  return created instanceof Date ? created : undefined;
}

/** Keys with parked messages, and those that a dead letter holds though nothing waits behind it yet. */
async function countBlockedKeys({ outbox, dead }: Pick<Tables, "outbox" | "dead">, relay: string): Promise<number> {
  const solo = { $cond: [{ $eq: [{ $ifNull: ["$key", null] }, null] }, "$_id", null] };
  const keys = await outbox.aggregate([
    { $match: { waits: "parked", relay } },
    { $group: { _id: { stream: "$stream", key: "$key", solo } } },
  ]);
  const names = new Set(keys.map(({ _id }) => nameOf(_id as Document)));
  const holding = await dead.find({ relay, blocks: true, state: "dead" }, { projection: { stream: 1, key: 1 } });
  for (const letter of holding) if (letter["key"] != null) names.add(nameOf({ ...letter, solo: null }));
  return names.size;
}

function nameOf({ stream, key, solo }: Document): string {
  return JSON.stringify([stream, key, solo]);
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
    };
  });
}
