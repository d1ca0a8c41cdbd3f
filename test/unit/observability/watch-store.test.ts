import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { RelayFigures, StoreFigures } from "../../../src/core/contracts.ts";
import { watchStore, type Alert, type WatchStoreOptions } from "../../../src/observability/watch-store.ts";
import { within } from "../../../src/testing/eventually.ts";
import { fakeClock } from "../../../src/testing/index.ts";

const relay: RelayFigures = {
  name: "r",
  streams: null,
  paused: false,
  lanes: [{ owner: "me", lanes: 64, leaseMs: 1000, epoch: 1n }],
  published: 0n,
  pending: 0,
  pendingEstimated: false,
  oldestPendingAgeMs: null,
  parked: 0,
  blockedKeys: 0,
  dead: 0,
  holdsBackRetention: false,
};
const quiet: StoreFigures = {
  relays: [relay],
  activity: [],
  scheduled: { count: 0, estimated: false, nextAt: null },
  unread: [],
  logBytes: 0,
  receiptBytes: 0,
  unarchivedSegments: 0,
  failedReceipts: [],
};
const of = (more: Partial<RelayFigures>): StoreFigures => ({ ...quiet, relays: [{ ...relay, ...more }] });

const never = undefined as never;

const EVERY_MS = 15_000;

/** Looks at one state of the store after another; what was told at each look. */
async function watched(
  states: readonly (StoreFigures | Error)[],
  options: Partial<WatchStoreOptions> = {},
): Promise<string[][]> {
  const clock = fakeClock();
  const told: Alert[] = [];
  let n = 0;
  const figures = (): Promise<StoreFigures> => {
    const state = states[n++]!;
    return state instanceof Error ? Promise.reject(state) : Promise.resolve(state);
  };
  const onAlert = (alert: Alert) => void told.push(alert);
  const watch = watchStore({ store: { admin: { figures } }, everyMs: EVERY_MS, clock, onAlert, ...options });
  onTestFinished(() => watch.stop());
  const looks: string[][] = [];
  for (let look = 1; look <= states.length; look++) {
    await vi.waitFor(() => expect(n).toBe(look));
    await new Promise((resolve) => setTimeout(resolve, 2));
    looks.push(
      told.splice(0).map(({ name, state, relay: of, stream }) => `${name} ${of ?? stream ?? "store"} ${state}`),
    );
    if (look < states.length) await clock.advance(EVERY_MS);
  }
  return looks;
}

describe("watchStore", () => {
  it("tells of lag once when it begins, and once when it is over", async () => {
    const late = of({ oldestPendingAgeMs: 301_000, pending: 5 });
    expect(await watched([quiet, late, late, quiet, quiet, late])).toEqual([
      [],
      ["lag r firing"],
      [],
      ["lag r over"],
      [],
      ["lag r firing"],
    ]);
  });

  it("lets a paused relay lag", async () => {
    expect(await watched([of({ oldestPendingAgeMs: 9e9, paused: true, lanes: [] })])).toEqual([[]]);
  });

  it("tells of dead letters that grow, not of those that are there", async () => {
    const dead = (count: number) => of({ dead: count });
    const still = Array.from({ length: 4 }, () => dead(9));
    expect(await watched([dead(7), dead(7), dead(8), dead(9), ...still], { growthMs: 3 * EVERY_MS })).toEqual([
      [],
      [],
      ["dead_letters r firing"],
      [],
      [],
      [],
      ["dead_letters r over"],
      [],
    ]);
  });

  it("tells that more comes in than goes out", async () => {
    const pending = (count: number) => of({ pending: count });
    const states = [0, 2000, 4000, 6000, 6000, 6000, 2000].map(pending);
    expect(await watched(states, { growthMs: 2 * EVERY_MS })).toEqual([
      [],
      [],
      ["growing r firing"],
      [],
      [],
      ["growing r over"],
      [],
    ]);
  });

  it("tells that no process runs a relay, after a while", async () => {
    const lanes = [{ owner: "me", lanes: 64, leaseMs: 0, epoch: 1n }];
    const alone = of({ lanes, pending: 3, parked: 2 });
    expect(await watched([quiet, alone, alone, alone, quiet], { noRelayMs: 2 * EVERY_MS })).toEqual([
      [],
      [],
      [],
      ["no_relay r firing"],
      ["no_relay r over"],
    ]);
  });

  it("lets a relay that cron runs be without a process, while nothing waits that could go", async () => {
    const [waits, done] = [of({ lanes: [], pending: 3 }), of({ lanes: [], pending: 2, parked: 2 })];
    expect(await watched([done, waits, done, waits, done, done], { noRelayMs: EVERY_MS })).toEqual(
      Array.from({ length: 6 }, () => []),
    );
  });

  it("tells of retention that is held back and of streams that no relay reads", async () => {
    const held = { ...of({ holdsBackRetention: true }), unread: [{ stream: "lost", oldestAgeMs: 301_000 }] };
    expect(await watched([held, quiet])).toEqual([
      ["retention_held_back r firing", "unread_stream lost firing"],
      ["retention_held_back r over", "unread_stream lost over"],
    ]);
  });

  it("tells that the store is away; what fired before is neither over nor told again", async () => {
    const late = of({ oldestPendingAgeMs: 301_000 });
    const gone = new Error("gone");
    expect(await watched([late, gone, gone, late, quiet])).toEqual([
      ["lag r firing"],
      ["store_unavailable store firing"],
      [],
      ["store_unavailable store over"],
      ["lag r over"],
    ]);
  });

  it("goes on when onAlert throws or rejects", async () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    onTestFinished(() => warn.mockRestore());
    const late = of({ oldestPendingAgeMs: 301_000 });
    let calls = 0;
    const onAlert = (): unknown => {
      if (calls++ === 0) throw new Error("mine");
      return Promise.reject(new Error("mine too"));
    };
    await watched([late, quiet, late], { onAlert });
    expect(calls).toBe(3);
    // Each kind of trouble is warned of once a minute.
    expect(warn).toHaveBeenCalledOnce();
  });

  it("stops at once, though the store hangs", async () => {
    const figures = () => new Promise<never>(() => undefined);
    const watch = watchStore({ store: { admin: { figures } }, onAlert: () => undefined });
    await within(10_000, "the stop", watch.stop());
  });

  it.each([
    [{ store: { admin: { figures: () => never } } }, /onAlert must be a function/],
    [{ store: {}, onAlert: () => never }, /store.admin.figures must be a function/],
    [{ store: { admin: { figures: () => never } }, onAlert: () => never, maxLagMs: 5 }, /has no option "maxLagMs"/],
    [
      { store: { admin: { figures: () => never } }, onAlert: () => never, maxAgeMs: 0 },
      /maxAgeMs must be a whole number/,
    ],
  ])("refuses %o", (options, message) => {
    expect(() => watchStore(options as never)).toThrow(message);
  });
});

it("begins no other look while the one before goes on", async () => {
  const clock = fakeClock();
  let looks = 0;
  const told: string[] = [];
  const figures = () => (looks++, new Promise<StoreFigures>(() => undefined));
  const onAlert = ({ name }: Alert) => void told.push(name);
  const watch = watchStore({ store: { admin: { figures } }, everyMs: EVERY_MS, clock, onAlert });
  onTestFinished(() => watch.stop());
  for (let i = 0; i < 4; i++) await clock.advance(10_000);
  expect([looks, told]).toEqual([1, ["store_unavailable"]]);
});
