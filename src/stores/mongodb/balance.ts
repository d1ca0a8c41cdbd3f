import { LANES } from "../../core/lane.ts";
import type { RelayView } from "./mongodb-ownership.ts";

/** A lane that stays free this long is anybody's. */
const ANYBODYS_AFTER_MS = 3000;

export interface BalancePlan {
  /** Free lanes to take over. */
  take: number[];
  /** Own lanes to give away. */
  give: number[];
}

/**
 * Shares lanes out evenly, each process deciding for itself from what it sees: the poorest take what is free, the
 * richest gives what is above its share. Wrong guesses cost time, never a lane: ownership is decided by the database.
 */
export function planBalance({ members, lanes, at }: RelayView, me: string): BalancePlan {
  const lanesOf = new Map<string, number[]>();
  for (const { owner } of members) lanesOf.set(owner, []);
  if (!lanesOf.has(me)) return { take: [], give: [] };
  const free = lanes.filter(({ owner }) => owner === null);
  for (const { owner, lane } of lanes) if (owner !== null) lanesOf.get(owner)?.push(lane);
  const ranked = [...lanesOf].toSorted(([a, x], [b, y]) => x.length - y.length || (a < b ? -1 : 1));
  const share = Math.ceil(LANES / lanesOf.size);
  const mine = lanesOf.get(me) ?? [];
  if (free.length > 0) {
    const rank = ranked.findIndex(([owner]) => owner === me);
    const room = Math.max(0, share - mine.length);
    const anybodys = free.filter(({ freed_at }) => at.getTime() - freed_at.getTime() > ANYBODYS_AFTER_MS);
    // The nth poorest takes every nth one first, so that processes which look at the same time seldom collide.
    const own = free.filter((_, i) => i % ranked.length === rank);
    const rest = rank === 0 ? free : [];
    const wanted = new Set([...[...new Set([...own, ...rest])].slice(0, room), ...anybodys]);
    return { take: [...wanted].map(({ lane }) => lane), give: [] };
  }
  const excess = mine.length - share;
  const wantedByOthers = ranked.reduce(
    (sum, [owner, own]) => sum + (owner === me ? 0 : Math.max(0, share - own.length)),
    0,
  );
  const count = Math.min(Math.max(excess, 0), wantedByOthers);
  return { take: [], give: count > 0 ? mine.slice(-count) : [] };
}
