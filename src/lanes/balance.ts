import { LANES } from "../core/lane.ts";
import type { View } from "./lane-port.ts";

/** Any process may take a lane that stays free this long. */
const OPEN_TO_ALL_AFTER_MS = 3000;

export interface BalancePlan {
  /** Free lanes to take over. */
  readonly take: readonly number[];
  /** Own lanes to give away. */
  readonly give: readonly number[];
}

const NOTHING: BalancePlan = { take: [], give: [] };

/**
 * Shares lanes out evenly, each process deciding for itself from what it sees. The shares of one view add up: what is
 * free is divided among those below their share, and the one that is furthest above its share gives. Wrong guesses cost
 * time, never a lane: ownership is decided by the database.
 */
export function planBalance({
  self,
  members,
  lanes,
  together = false,
}: Pick<View, "self" | "members" | "lanes" | "together">): BalancePlan {
  if (!members.includes(self)) return NOTHING;
  const lanesOf = new Map<string, number[]>(members.map((member) => [member, []]));
  const free = lanes.filter(({ owner, freeMs }) => owner === null || freeMs >= 0);
  for (const { lane, owner, freeMs } of lanes) {
    if (owner === null || freeMs >= 0) continue;
    const own = lanesOf.get(owner);
    if (own === undefined) lanesOf.set(owner, [lane]);
    else own.push(lane);
  }
  const ranked = [...lanesOf].toSorted(([a, x], [b, y]) => x.length - y.length || (a < b ? -1 : 1));
  // A share that is rounded up goes to a process with many lanes, which so keeps what it has; of equals, to the last by
  // name.
  const shares = ranked.map(([owner, own], i) => {
    const share = together ? (i === ranked.length - 1 ? LANES : 0) : Math.floor((LANES + i) / ranked.length);
    const excess = own.length - share;
    return { owner, own, excess, room: Math.max(0, -excess) };
  });
  return free.length > 0 ? takeFree(shares, free, self) : giveExcess(shares, self);
}

interface Share {
  readonly owner: string;
  readonly own: readonly number[];
  /** Lanes above its share; negative: it lacks some. */
  readonly excess: number;
  readonly room: number;
}

function takeFree(shares: readonly Share[], free: View["lanes"], self: string): BalancePlan {
  let from = 0;
  for (const { owner, room } of shares) {
    if (owner === self) {
      const mine = free.slice(from, from + room);
      const open = free.filter(({ freeMs }) => freeMs > OPEN_TO_ALL_AFTER_MS);
      return { take: [...new Set([...mine, ...open])].map(({ lane }) => lane), give: [] };
    }
    from += room;
  }
  return NOTHING;
}

function giveExcess(shares: readonly Share[], self: string): BalancePlan {
  const most = shares.reduce((a, b) => (b.excess >= a.excess ? b : a));
  if (most.owner !== self) return NOTHING;
  const wanted = shares.reduce((sum, { room }) => sum + room, 0);
  const count = Math.min(most.excess, wanted);
  return count > 0 ? { take: [], give: most.own.slice(-count) } : NOTHING;
}
