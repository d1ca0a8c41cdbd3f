import { LANES } from "../../core/lane.ts";
import type { RelayView } from "./postgres-ownership.ts";

/** A cursor that stays free this long is anybody's. */
const ANYBODYS_AFTER_MS = 3000;

export interface BalancePlan {
  /** Free cursors to take over. */
  take: string[];
  /** Numbers of lanes to give away, a cursor each. */
  give: number[];
}

/**
 * Shares lanes out evenly, each process deciding for itself from what it sees: the poorest takes what is free, the
 * richest gives what is above its share. Wrong guesses cost time, never a lane: ownership is decided by the database.
 */
export function planBalance(view: RelayView, me: string): BalancePlan {
  const lanesOf = new Map<string, number>();
  for (const member of [...view.members, me]) lanesOf.set(member, 0);
  const free = [];
  for (const cursor of view.cursors) {
    if (cursor.owner === null || cursor.freeMs >= 0) free.push(cursor);
    else lanesOf.set(cursor.owner, (lanesOf.get(cursor.owner) ?? 0) + cursor.lanes);
  }
  const ranked = [...lanesOf].toSorted(([a, x], [b, y]) => x - y || (a < b ? -1 : 1));
  const share = Math.ceil(LANES / lanesOf.size);
  if (free.length > 0) {
    // The nth poorest takes the nth free one; alone, all of them.
    const rank = ranked.findIndex(([owner]) => owner === me);
    const mine = free.filter((cursor, i) => i % ranked.length === rank || cursor.freeMs > ANYBODYS_AFTER_MS);
    return { take: mine.map((cursor) => cursor.id), give: [] };
  }
  const give = [];
  let excess = lanesOf.get(me)! - share;
  if (excess > 0 && ranked.at(-1)![0] === me) {
    for (const [owner, lanes] of ranked) {
      const count = Math.min(excess, share - lanes);
      if (owner === me || count <= 0) break;
      give.push(count);
      excess -= count;
    }
  }
  return { take: [], give };
}
