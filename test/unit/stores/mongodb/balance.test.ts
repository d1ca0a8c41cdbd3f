import { describe, expect, test } from "vitest";
import { LANES } from "../../../../src/core/lane.ts";
import { planBalance } from "../../../../src/stores/mongodb/balance.ts";
import type { RelayView } from "../../../../src/stores/mongodb/mongodb-ownership.ts";
import { BALANCE_PROPERTIES, type Plan } from "../../lanes/balance-properties.ts";

const AT = 1_800_000_000_000;

const plan: Plan = ({ self, members, lanes }) => {
  const view: RelayView = {
    streams: null,
    paused: false,
    published: 0,
    rescans: 0,
    creating: undefined,
    at: new Date(AT),
    members: members.map((owner) => ({ owner, lease_until: new Date(AT + 10_000) })),
    lanes: lanes.map(({ lane, owner, freeMs }) => ({
      lane,
      owner,
      epoch: 1,
      freed_at: new Date(AT - Math.max(0, freeMs)),
      crashes: 0,
      stale: [],
    })),
  };
  return planBalance(view, self);
};

describe("lanes are shared out", () => {
  test.each([
    "takes only what is free, and gives only what it has",
    "gives nothing while a lane is free",
    "nobody gives below the share",
    "lanes are taken up to the share",
    "what is free for long goes to anyone, so that it goes even when a member is dead",
    "alone, a process takes all",
    "the shares add up: every lane gets an owner, and nobody keeps more than the share",
  ] as const)("%s", (name) => BALANCE_PROPERTIES[name](plan));

  test("one that is no member does nothing", () => {
    const lanes = Array.from({ length: LANES }, (_, lane) => ({ lane, owner: null, freeMs: 100 }));
    expect(plan({ self: "x", members: ["y"], lanes })).toEqual({ take: [], give: [] });
  });
});
