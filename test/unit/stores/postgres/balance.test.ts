import { describe, expect, test } from "vitest";
import { planBalance } from "../../../../src/stores/postgres/balance.ts";
import type { CursorView, RelayView } from "../../../../src/stores/postgres/postgres-ownership.ts";
import { BALANCE_PROPERTIES, type Plan } from "../../lanes/balance-properties.ts";

function view(members: readonly string[], cursors: CursorView[]): RelayView {
  const members_ = [...members];
  const rest = { exists: true, paused: false, streams: null, standby: false, timeline: "1", hidden: [] };
  return { ...rest, members: members_, cursors, commands: false, scheduledInMs: null };
}

const cursor = (id: string, owner: string | null, lanes: number, freeMs = owner === null ? 100 : -10_000) => ({
  id,
  owner,
  freeMs,
  restored: false,
  lanes,
});

/** A cursor for each lane; what is given is a number, and the last ones go. */
const plan: Plan = ({ self, members, lanes }) => {
  const cursors = lanes.map(({ lane, owner, freeMs }) => cursor(String(lane), owner, 1, freeMs));
  const { take, give } = planBalance(view(members, cursors), self);
  const own = lanes.filter(({ owner }) => owner === self).map(({ lane }) => lane);
  const count = give.reduce((sum, one) => sum + one, 0);
  return { take: take.map(Number), give: count === 0 ? [] : own.slice(-count) };
};

describe("lanes are shared out", () => {
  test.each([
    "takes only what is free, and gives only what it has",
    "gives nothing while a lane is free",
    "nobody gives below the share",
    "only the richest gives",
    "what is free for long goes to anyone, so that it goes even when a member is dead",
    "alone, a process takes all",
    "the shares add up: every lane gets an owner, and nobody keeps more than the share",
  ] as const)("%s", (name) => BALANCE_PROPERTIES[name](plan));

  test("of free cursors each has one taker", () => {
    const cursors = ["a", "b", "c", "d", "e"].map((id) => cursor(id, null, 10));
    const members = ["x", "y", "z"];
    const taken = members.flatMap((self) => planBalance(view(members, cursors), self).take);
    expect(taken.toSorted()).toEqual(["a", "b", "c", "d", "e"]);
  });

  test("the richest gives each that lacks lanes a cursor of its own, the poorest first", () => {
    const cursors = [cursor("a", "x", 44), cursor("b", "y", 15), cursor("c", "z", 5)];
    // The share is 22: z lacks 17, y lacks 7, x has 22 too many.
    expect(planBalance(view(["x", "y", "z"], cursors), "x")).toEqual({ take: [], give: [17, 5] });
    expect(planBalance(view(["x", "y", "z"], cursors), "y")).toEqual({ take: [], give: [] });
  });

  test("a lease that has run out is free, whoever owned it", () => {
    const cursors = [cursor("a", "gone", 64, 0)];
    expect(planBalance(view(["x"], cursors), "x").take).toEqual(["a"]);
  });
});
