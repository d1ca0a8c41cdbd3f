// oxlint-disable vitest/no-standalone-expect -- checks for tests, which call them by name
import fc from "fast-check";
import { expect } from "vitest";
import { LANES } from "../../../src/core/lane.ts";

export interface Lane {
  readonly lane: number;
  readonly owner: string | null;
  /** How long it has been free, in ms; negative while it is owned. */
  readonly freeMs: number;
}

/** What one process of a relay sees. */
export interface View {
  readonly self: string;
  readonly members: readonly string[];
  readonly lanes: readonly Lane[];
}

/** Lanes to take over and own lanes to give away. */
export type Plan = (view: View) => { take: readonly number[]; give: readonly number[] };

type World = Omit<View, "self">;

/** Free for so long that any process may take it. */
const LONG_FREE_MS = 60_000;
const most = ({ members }: World): number => Math.ceil(LANES / members.length);
const least = ({ members }: World): number => Math.floor(LANES / members.length);
const ownedBy = ({ lanes }: World, owner: string | null): number[] =>
  lanes.filter((lane) => lane.owner === owner).map(({ lane }) => lane);

function worlds(free: "some free" | "none free"): fc.Arbitrary<World> {
  return fc.integer({ min: 1, max: 9 }).chain((count) => {
    const members = Array.from({ length: count }, (_, i) => `m${i}`);
    const owner = fc.constantFrom<string | null>(...members, ...(free === "none free" ? [] : [null, null]));
    // Most members have one lane in a few: otherwise all of them would be near their share.
    const sizes = fc.array(owner, { minLength: LANES, maxLength: LANES });
    const few = fc.tuple(owner, sizes).map(([rich, all]) => all.map((one, i) => (i % 3 === 0 ? one : rich)));
    return fc.oneof(sizes, few).map((owners) => ({
      members,
      lanes: owners.map((one, lane) => ({ lane, owner: one, freeMs: one === null ? 100 : -10_000 })),
    }));
  });
}

const holds = (world: fc.Arbitrary<World>, check: (world: World) => void): void =>
  fc.assert(fc.property(world, check), { numRuns: 300 });

/** What must be true of every way to share lanes out, by name: `BALANCE_PROPERTIES[name](plan)`. */
export const BALANCE_PROPERTIES = {
  "takes only what is free, and gives only what it has"(plan: Plan) {
    holds(fc.oneof(worlds("some free"), worlds("none free")), (world) => {
      for (const self of world.members) {
        const { take, give } = plan({ ...world, self });
        const free = new Set(ownedBy(world, null));
        const own = new Set(ownedBy(world, self));
        expect(take.filter((lane) => !free.has(lane))).toEqual([]);
        expect(give.filter((lane) => !own.has(lane))).toEqual([]);
        expect(new Set([...take, ...give]).size).toBe(take.length + give.length);
      }
    });
  },

  "gives nothing while a lane is free"(plan: Plan) {
    holds(worlds("some free"), (world) => {
      if (ownedBy(world, null).length === 0) return;
      for (const self of world.members) expect(plan({ ...world, self }).give).toEqual([]);
    });
  },

  "no process gives below the share"(plan: Plan) {
    holds(worlds("none free"), (world) => {
      for (const self of world.members) {
        const { give } = plan({ ...world, self });
        if (give.length > 0) expect(ownedBy(world, self).length - give.length).toBeGreaterThanOrEqual(least(world));
      }
    });
  },

  "only the richest gives"(plan: Plan) {
    holds(worlds("none free"), (world) => {
      const sizes = world.members.map((self) => ownedBy(world, self).length);
      const giving = world.members.filter((self) => plan({ ...world, self }).give.length > 0);
      expect(giving.length).toBeLessThanOrEqual(1);
      for (const self of giving) expect(ownedBy(world, self)).toHaveLength(Math.max(...sizes));
    });
  },

  "lanes are taken up to the share"(plan: Plan) {
    holds(worlds("some free"), (world) => {
      for (const self of world.members) {
        const own = ownedBy(world, self).length;
        const { take } = plan({ ...world, self });
        expect(own + take.length).toBeLessThanOrEqual(Math.max(own, most(world)));
      }
    });
  },

  "what is free for long goes to any process, so that it goes even when a member is dead"(plan: Plan) {
    holds(worlds("some free"), (world) => {
      const lanes = world.lanes.map((lane) => (lane.owner === null ? { ...lane, freeMs: LONG_FREE_MS } : lane));
      for (const self of world.members) {
        expect([...plan({ ...world, lanes, self }).take].toSorted((a, b) => a - b)).toEqual(ownedBy(world, null));
      }
    });
  },

  "alone, a process takes all"(plan: Plan) {
    const lanes = Array.from({ length: LANES }, (_, lane) => ({ lane, owner: null, freeMs: 100 }));
    expect(plan({ self: "m0", members: ["m0"], lanes }).take).toHaveLength(LANES);
  },

  "the shares add up: every lane gets an owner, and no process keeps more than the share"(plan: Plan) {
    holds(fc.oneof(worlds("some free"), worlds("none free")), (world) => {
      let { lanes } = world;
      for (let round = 0; round < 40; round++) lanes = after({ ...world, lanes }, plan);
      const end = { ...world, lanes };
      expect(ownedBy(end, null)).toEqual([]);
      for (const member of world.members) expect(ownedBy(end, member).length).toBeLessThanOrEqual(most(world));
    });
  },
} as const;

/** All processes act on the same view, and of two that want a lane the first one gets it. A second passes. */
function after(world: World, plan: Plan): readonly Lane[] {
  const next = new Map(world.lanes.map((lane) => [lane.lane, lane]));
  for (const self of world.members) {
    const { take, give } = plan({ ...world, self });
    for (const lane of give) next.set(lane, { lane, owner: null, freeMs: 0 });
    for (const lane of take) if (next.get(lane)?.owner === null) next.set(lane, { lane, owner: self, freeMs: -10_000 });
  }
  return Array.from(next.values(), (lane) => (lane.owner === null ? { ...lane, freeMs: lane.freeMs + 1000 } : lane));
}
