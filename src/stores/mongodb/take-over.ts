import type { BlockedKeys } from "./blocked-keys.ts";
import { writeLetters } from "./dead-letters.ts";
import { loadKeys } from "./load-keys.ts";
import type { Tables } from "./mongodb-names.ts";
import { type MongoOwnership, type RelayView, resumeTime } from "./mongodb-ownership.ts";
import { type ClusterTime, firstOf } from "./cluster-time.ts";
import { takeBack, takeBackForgotten } from "./take-back.ts";

export interface TakeOverOptions {
  tables: Tables;
  ownership: MongoOwnership;
  relay: string;
  unordered: readonly string[];
  keys: BlockedKeys;
  /** Monotonic time of a time of the server. */
  monotonicOf: (time: Date) => number;
}

/**
 * What an owner does before it claims anything: takes back what owners before it had claimed, finishes deaths, and
 * takes note of what is blocked. Gives the time from which a change stream can go on for all of its lanes, if there
 * is one: then nothing is ready but what that stream will bring.
 */
export async function takeOver(
  options: TakeOverOptions,
  view: RelayView,
  me: string,
): Promise<ClusterTime | undefined> {
  const { tables, ownership, relay, unordered, keys, monotonicOf } = options;
  const mine = view.lanes.filter(({ owner }) => owner === me);
  const lanes = mine.map(({ lane }) => lane);
  if (lanes.length === 0) {
    keys.clear();
    return undefined;
  }
  let released = 0;
  if (mine.some(({ stale }) => stale.length > 0)) {
    released += await takeBack(tables.outbox, relay, mine, unordered);
    await ownership.forgetStale(me);
  }
  const members = view.members.map(({ owner }) => owner);
  released += await takeBackForgotten(tables.outbox, { relay, lanes, members }, unordered);
  const dying = await tables.outbox.find({ waits: "dying", relay, lane: { $in: lanes } });
  if (dying.length > 0) await writeLetters(tables, relay, dying);
  keys.clear();
  await loadKeys(tables, keys, { relay, lanes, unordered, monotonicOf });
  return released > 0 ? undefined : firstOf(mine.map(resumeTime));
}
