import { describe, expect, it } from "vitest";
import type { RelayInfo } from "../../../src/core/contracts.ts";
import { createHealth } from "../../../src/observability/health.ts";

const info: RelayInfo = {
  name: "r",
  streams: null,
  paused: false,
  lanes: [{ owner: "me", lanes: 64, leaseMs: 1000, epoch: 1n }],
  published: 0n,
  pending: 7,
  pendingEstimated: false,
  oldestPendingAgeMs: 10_000,
  parked: 0,
  blockedKeys: 0,
  dead: 0,
};
const relay = (running: boolean, turnedMsAgo: number | undefined) => ({
  name: "r",
  state: () => ({ running, turnedMsAgo }),
});
const health = (found: readonly RelayInfo[], maxAgeMs = 30_000) =>
  createHealth({
    store: { admin: { relays: () => Promise.resolve([...found]) } },
    relays: [relay(true, 10)],
    maxAgeMs,
  });

describe("live", () => {
  it.each([
    [relay(true, 900), []],
    [relay(true, undefined), []],
    [relay(false, undefined), ["relay r does not run"]],
    [relay(true, 200_000), ["the loop of relay r has not turned for 200 s"]],
  ])("says whether relays run and their loops turn: %#", (one, reasons) => {
    const store = { admin: { relays: () => Promise.reject(new Error("must not be asked")) } };
    expect(createHealth({ store, relays: [one] }).live()).toEqual({ ok: reasons.length === 0, reasons });
  });
});

describe("ready", () => {
  it("says yes while the oldest message is young enough", async () => {
    expect(await health([info]).ready()).toEqual({
      ok: true,
      reasons: [],
      relays: [{ name: "r", paused: false, pending: 7, oldestPendingAgeMs: 10_000 }],
    });
  });

  it("says no, and why, when it is too old", async () => {
    const { ok, reasons } = await health([{ ...info, parked: 3, oldestPendingAgeMs: 31_000, lanes: [] }]).ready();
    expect(ok).toBe(false);
    expect(reasons).toEqual([
      "relay r: the oldest of 7 pending messages has waited 31 s, more than 30 s; 3 of them wait behind failed ones; no process runs it",
    ]);
  });

  it("lets a paused relay wait, and relays of other processes", async () => {
    const old = { ...info, oldestPendingAgeMs: 31_000 };
    expect((await health([{ ...old, paused: true }]).ready()).ok).toBe(true);
    expect((await health([{ ...old, name: "another" }, info]).ready()).ok).toBe(true);
  });

  it("begins no other look while the one before goes on", { timeout: 20_000 }, async () => {
    let looks = 0;
    const relays = () => (looks++, new Promise<RelayInfo[]>(() => undefined));
    const asked = createHealth({ store: { admin: { relays } } });
    for (let i = 0; i < 2; i++)
      expect((await asked.ready()).reasons).toEqual(["the store did not answer within 5000 ms"]);
    expect(looks).toBe(1);
  });

  it("says no when the store cannot be used, and asks it again later", async () => {
    let away = true;
    const relays = () => (away ? Promise.reject(new Error("gone")) : Promise.resolve([info]));
    const asked = createHealth({ store: { admin: { relays } } });
    expect(await asked.ready()).toEqual({ ok: false, reasons: ["the store cannot be used: Error: gone"], relays: [] });
    away = false;
    await expect.poll(async () => (await asked.ready()).ok, { timeout: 3000 }).toBe(true);
  });
});

it.each([
  [{ store: {} }, /store.admin.relays must be a function/],
  [{ store: { admin: { relays: () => [] } }, relays: ["r"] }, /relays must be an array of relays/],
  [{ store: { admin: { relays: () => [] } }, maxAge: 5 }, /Did you mean "maxAgeMs"/],
])("refuses %o", (options, message) => {
  expect(() => createHealth(options as never)).toThrow(message);
});
