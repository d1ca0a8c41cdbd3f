import { expect, test } from "vitest";
import type { RelayInfo, Store } from "../../../src/core/contracts.ts";
import { commonChecks } from "../../../src/doctor/common-checks.ts";

async function found(parked: number, ...processes: Partial<RelayInfo["lanes"][number]>[]) {
  const lanes = processes.map((process, n) => ({ owner: `p${n}`, lanes: 8, leaseMs: 5000, epoch: 1n, ...process }));
  const relays = async () => [{ name: "r", parked, lanes }];
  const store = { admin: { relays } } as unknown as Store;
  const check = commonChecks(store).find(({ name }) => name === "parked_messages")!;
  return (await check.run()).map(({ severity, finding }) => `${severity}: ${finding}`);
}

const ten = { maxParked: 10 };

test("one process: an error when it is full", async () => {
  expect(await found(7, ten)).toEqual([]);
  expect(await found(8, ten)).toEqual(['warning: Relay "r" has 8 messages behind failed ones; `maxParked` is 10']);
  expect(await found(10, ten)).toEqual(['error: Relay "r" has 10 messages behind failed ones; `maxParked` is 10']);
});

test("several processes: an error only when one of them must be full, however the messages are divided", async () => {
  const together = "30 messages behind failed ones, its 4 processes together; `maxParked` of one is 10";
  expect(await found(30, ten, ten, ten, ten)).toEqual([`warning: Relay "r" has ${together}`]);
  expect(await found(36, ten, ten, ten, ten)).toEqual([expect.stringMatching(/^warning/)]);
  expect(await found(37, ten, ten, ten, ten)).toEqual([expect.stringMatching(/^error/)]);
  expect(await found(25, ten, { maxParked: 100 })).toEqual([expect.stringMatching(/^warning/)]);
});

test("a process that tells no limit, or is gone, or is listed twice", async () => {
  expect(await found(30, ten, {})).toEqual([expect.stringMatching(/^warning/)]);
  expect(await found(30, {})).toEqual([]);
  expect(await found(10, ten, { ...ten, leaseMs: 0 })).toEqual([expect.stringMatching(/^error/)]);
  expect(await found(10, ten, { ...ten, owner: "p0" })).toEqual([expect.stringMatching(/^error/)]);
});
