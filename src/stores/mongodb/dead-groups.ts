import type { DeadGroup, DeadGroupQuery } from "../../core/contracts.ts";
import { errorGroup } from "../../core/error-group.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { mergedGroups, type FoundGroup } from "../shared/merged-groups.ts";
import type { Document } from "./mongodb-client.ts";
import type { Tables } from "./mongodb-names.ts";

/** Letters of older relays have no group: so many are looked at. */
const UNGROUPED = 5000;
/** Keys are counted of groups up to this size, and of so many letters in all. */
const KEYS_OF_GROUP = 1000;
const KEYS_IN_ALL = 10_000;
/** How many letters get their group in one write. */
const PART = 1000;
/** The server itself ends a query that takes longer. */
const MAX_TIME_MS = 30_000;

/** Groups by their index, which has all that is counted: documents of letters are read for what is shown only. */
export async function deadGroups(tables: Tables, query: DeadGroupQuery): Promise<DeadGroup[]> {
  const filter = {
    state: "dead",
    ...(query.relay === undefined ? {} : { relay: query.relay }),
    ...(query.stream === undefined ? {} : { stream: query.stream }),
    ...(query.type === undefined ? {} : { event_type: query.type }),
  };
  const found = await tables.dead.aggregate(
    [
      { $match: { ...filter, error_group: { $gt: "" } } },
      // So that the index has all that is needed.
      { $project: { _id: 0, relay: 1, error_group: 1, died_at: 1, position: 1 } },
      {
        $group: {
          _id: { relay: "$relay", group: "$error_group" },
          count: { $sum: 1 },
          first: { $min: "$died_at" },
          last: { $max: "$died_at" },
          position: { $max: "$position" },
        },
      },
    ],
    { maxTimeMS: MAX_TIME_MS, hint: "txbox_groups" },
  );
  const { groups, more } = await ungrouped(tables, filter);
  const merged = mergedGroups(found.map(foundGroup), groups, more).slice(0, query.limit ?? DEFAULT_PAGE);
  return described(tables, merged);
}

function foundGroup({ _id, count, first, last, position }: Document): FoundGroup {
  const { relay, group } = _id as { relay: string; group: string };
  return {
    relay,
    group,
    count: count as number,
    estimated: false,
    firstDiedAt: first as Date,
    lastDiedAt: last as Date,
    position: BigInt(position as number),
  };
}

async function ungrouped({ dead }: Tables, filter: Document): Promise<{ groups: FoundGroup[]; more: boolean }> {
  const projection = { relay: 1, event_type: 1, last_error: 1, died_at: 1, position: 1 };
  const rows = await dead.find({ ...filter, error_group: null }, { limit: UNGROUPED + 1, projection });
  const groups = rows.slice(0, UNGROUPED).map((row): FoundGroup => {
    const diedAt = row["died_at"] as Date;
    const place = { relay: row["relay"] as string, group: groupOf(row), position: BigInt(row["position"] as number) };
    return { ...place, count: 1, estimated: false, firstDiedAt: diedAt, lastDiedAt: diedAt };
  });
  return { groups, more: rows.length > UNGROUPED };
}

async function described({ dead }: Tables, groups: readonly FoundGroup[]): Promise<DeadGroup[]> {
  if (groups.length === 0) return [];
  const newest = await dead.find(
    ofEachRelay(groups, (those) => ({ position: { $in: those.map(({ position }) => Number(position)) } })),
    { projection: { relay: 1, position: 1, stream: 1, event_type: 1, last_error: 1, error_group: 1, message_id: 1 } },
  );
  const byName = new Map(newest.map((row) => [`${storedGroup(row)} ${String(row["relay"])}`, row]));
  const keys = await countKeys(dead, groups);
  return groups.flatMap((one) => {
    const { mixed: _mixed, position, ...counts } = one;
    const row = byName.get(`${counts.group} ${counts.relay}`);
    // It was requeued meanwhile.
    if (row === undefined) return [];
    const stream = row["stream"] as string;
    const example = { position, relay: counts.relay, stream, id: String(row["message_id"] ?? row["_id"]) };
    const known = keys.get(`${counts.group} ${counts.relay}`) ?? null;
    const shown = { stream, type: row["event_type"] as string, error: row["last_error"] as string };
    return [{ ...counts, ...shown, keys: known, example }];
  });
}

async function countKeys(dead: Tables["dead"], groups: readonly FoundGroup[]): Promise<ReadonlyMap<string, number>> {
  let left = KEYS_IN_ALL;
  const few = groups.filter(({ count, estimated, mixed }) => {
    if (estimated || mixed === true || count > Math.min(left, KEYS_OF_GROUP)) return false;
    left -= count;
    return true;
  });
  if (few.length === 0) return new Map();
  const rows = await dead.aggregate([
    { $match: ofEachRelay(few, (those) => ({ error_group: { $in: those.map(({ group }) => group) } })) },
    { $group: { _id: { relay: "$relay", group: "$error_group" }, keys: { $addToSet: "$key" } } },
  ]);
  return new Map(
    rows.map(({ _id, keys }) => {
      const { relay, group } = _id as { relay: string; group: string };
      return [`${group} ${relay}`, (keys as unknown[]).filter((key) => key !== null).length];
    }),
  );
}

/** A condition for the groups of each relay: one for each group would be more than the server plans well. */
function ofEachRelay(groups: readonly FoundGroup[], condition: (those: readonly FoundGroup[]) => Document): Document {
  const relays = [...Map.groupBy(groups, ({ relay }) => relay)];
  return { $or: relays.map(([relay, those]) => ({ state: "dead", relay, ...condition(those) })) };
}

/** Gives letters of older relays their group; how many there were. */
export async function fillGroups({ dead }: Tables, most: number): Promise<number> {
  let count = 0;
  while (count < most) {
    const filter = { state: "dead", error_group: null };
    const rows = await dead.find(filter, { limit: PART, projection: { event_type: 1, last_error: 1, death: 1 } });
    if (rows.length === 0) return count;
    // Only of the death that was looked at.
    const updates = rows.map((row) => {
      const { _id, death = null } = row;
      return { updateOne: { filter: { _id, death }, update: { $set: { error_group: groupOf(row) } } } };
    });
    const { matchedCount } = await dead.bulkWrite(updates, { ordered: false });
    if (matchedCount === 0) return count;
    count += rows.length;
  }
  return count;
}

/** As it was written: another version may make another group of the same error. */
function storedGroup(row: Document): string {
  return typeof row["error_group"] === "string" ? row["error_group"] : groupOf(row);
}

function groupOf(row: Document): string {
  return errorGroup(String(row["event_type"]), String(row["last_error"]));
}
