import type { StoredKey } from "../../lanes/lane-port.ts";
import { type ClusterTime, firstOf } from "./cluster-time.ts";
import { writeLetters } from "./dead-letters.ts";
import { loadKeys } from "./load-keys.ts";
import type { Document } from "./mongodb-client.ts";
import type { StoredMessage } from "./mongodb-document.ts";
import type { Tables } from "./mongodb-names.ts";
import { type MongoOwnership, type RelayView, resumeTime } from "./mongodb-ownership.ts";
import { keepClaimed, takeBack, takeBackForgotten } from "./take-back.ts";

export interface TakeOverOptions {
  tables: Tables;
  ownership: MongoOwnership;
  relay: string;
  unordered: readonly string[];
  /** Messages of attempts that go on. */
  ongoing: readonly StoredMessage[];
  /** Time until then, by the server's clock. */
  inMs: (time: Date) => number;
}

export interface TakenOver {
  keys: readonly StoredKey[];
  ongoing: readonly Document[];
  /**
   * The time from which a change stream can go on for all of its lanes, if there is one: then nothing is ready but what
   * that stream will bring.
   */
  from: ClusterTime | undefined;
}

/**
 * What an owner does before it claims anything: takes back what owners before it had claimed, finishes deaths, and
 * takes note of what is blocked.
 */
export async function takeOver(options: TakeOverOptions, view: RelayView, me: string): Promise<TakenOver> {
  const { tables, ownership, relay, unordered, inMs } = options;
  const mine = view.lanes.filter(({ owner }) => owner === me);
  const lanes = mine.map(({ lane }) => lane);
  if (lanes.length === 0) return { keys: [], ongoing: [], from: undefined };
  const ongoing = await keepClaimed(tables.outbox, options.ongoing, { relay, lanes, owner: me });
  let released = 0;
  if (mine.some(({ stale }) => stale.length > 0)) {
    released += await takeBack(tables.outbox, relay, mine, unordered);
    await ownership.forgetStale(me);
  }
  const members = view.members.map(({ owner }) => owner);
  released += await takeBackForgotten(tables.outbox, { relay, lanes, members }, unordered);
  const dying = await tables.outbox.find({ waits: "dying", relay, lane: { $in: lanes } });
  if (dying.length > 0) await writeLetters(tables, relay, dying);
  const keys = await loadKeys(tables, { relay, lanes, unordered, inMs, ongoing });
  return { keys, ongoing, from: released > 0 ? undefined : firstOf(mine.map(resumeTime)) };
}
