import { describe, expect, test } from "vitest";
import type { ConsumerView, RelayView, StoreView } from "../../../src/admin/page-api.ts";
import { relayView, type RelayMemory } from "../../../src/admin/relay-view.ts";
import { verdictOf } from "../../../src/admin/verdict.ts";
import type { RelayFigures, Sample } from "../../../src/core/contracts.ts";
import { NO_COUNTS } from "../../../src/core/sample-counts.ts";

const NOW = Date.now();
const MINUTE = 60_000;

function figures(change: Partial<RelayFigures> = {}): RelayFigures {
  return {
    name: "r",
    streams: null,
    paused: false,
    lanes: [{ owner: "p1", lanes: 64, leaseMs: 20_000, epoch: 1n }],
    published: 100n,
    pending: 0,
    pendingEstimated: false,
    oldestPendingAgeMs: null,
    parked: 0,
    blockedKeys: 0,
    dead: 0,
    holdsBackRetention: false,
    ...change,
  };
}

function sample(agoMs: number, counts: Partial<Sample>): Sample {
  const none = { relay: "r", consumer: null, lastError: null, lastErrorAt: null };
  return { ...NO_COUNTS, ...none, at: new Date(NOW - agoMs), ...counts };
}

function view(change: Partial<RelayFigures>, samples: Sample[] = [], memory: Partial<RelayMemory> = {}): RelayView {
  const known = {
    readings: [],
    owners: new Map(),
    flowedAt: NOW,
    sawFlow: true,
    heldByDead: false,
    heldError: null,
    stateSince: null,
    ...memory,
  };
  return relayView({ store: "s", relay: figures(change), activity: undefined, samples, memory: known, now: NOW });
}

function storeOf(relays: RelayView[], change: Partial<StoreView> = {}): StoreView {
  const scheduled = { count: 0, estimated: false, nextAt: null };
  return {
    name: "s",
    kind: "postgres",
    down: null,
    relays,
    consumers: [],
    scheduled,
    unread: [],
    logBytes: 0,
    receiptBytes: 0,
    ...change,
  };
}

describe("the verdict in words", () => {
  const noProcess = [{ owner: null, lanes: 64, leaseMs: 0, epoch: 1n }];
  const outage = [
    sample(4 * MINUTE, { unavailable: 1 }),
    sample(3 * MINUTE, { unavailable: 2 }),
    sample(90_000, { unavailable: 1 }),
    sample(20_000, { unavailable: 1 }),
  ];
  test.each<[string, RelayView, string, RegExp]>([
    ["all is well", view({}), "good", /^All messages have left/],
    ["messages flow", view({ pending: 3, oldestPendingAgeMs: 300 }), "good", /^All messages leave within 300 ms\.$/],
    [
      "the target is out, and the page was opened just now",
      view({ pending: 12_480, oldestPendingAgeMs: 4 * MINUTE }, outage, { flowedAt: NOW, sawFlow: false }),
      "bad",
      /^Relay r: target out for 4 min, 12,480 messages wait\.$/,
    ],
    [
      "the target is out",
      view({ pending: 12_480, oldestPendingAgeMs: 4 * MINUTE }, outage, { flowedAt: 0 }),
      "bad",
      /^Relay r: target out for 4 min, 12,480 messages wait\.$/,
    ],
    [
      "it was out and messages leave again",
      view({ pending: 5, oldestPendingAgeMs: 500 }, outage),
      "good",
      /^All messages leave/,
    ],
    [
      "it was out, by its own samples over",
      view({ pending: 5, oldestPendingAgeMs: 500 }, [...outage, sample(5000, { published: 3 })]),
      "good",
      /^All messages leave/,
    ],
    [
      "no process",
      view({ lanes: noProcess, pending: 7, oldestPendingAgeMs: MINUTE }),
      "bad",
      /no process runs it, 7 messages wait, the first for 60 s/,
    ],
    [
      "no process, for a moment",
      view({ lanes: noProcess, pending: 7, oldestPendingAgeMs: 2000 }),
      "good",
      /^All messages leave/,
    ],
    [
      "paused",
      view({ paused: true, pending: 7, oldestPendingAgeMs: MINUTE }),
      "attention",
      /^Relay r is paused, 7 messages wait/,
    ],
    [
      "nothing leaves",
      view({ pending: 7, oldestPendingAgeMs: 15_000 }, [], { flowedAt: NOW - 15_000 }),
      "attention",
      /nothing has left for 15 s, 7 messages wait/,
    ],
    [
      "late",
      view({ pending: 70_000, oldestPendingAgeMs: 5 * MINUTE }),
      "bad",
      /^Relay r is late: 70,000 messages wait, the first for 5 min\.$/,
    ],
    [
      "keys are tried again",
      view({ pending: 9, parked: 9, blockedKeys: 2, oldestPendingAgeMs: 5 * MINUTE }),
      "attention",
      /2 keys are blocked, 9 messages wait/,
    ],
    [
      "dead letters block keys",
      view({ pending: 9, parked: 9, blockedKeys: 2, dead: 2 }, [], { heldByDead: true }),
      "bad",
      /^Relay r: 2 dead letters block 2 keys, 9 messages wait\.$/,
    ],
    [
      "dead letters of now",
      view({ dead: 300 }, [sample(MINUTE, { dead: 300 })]),
      "bad",
      /^Relay r: 300 dead letters\.$/,
    ],
    ["dead letters of yesterday", view({ dead: 2 }), "attention", /^Relay r: 2 dead letters\.$/],
    ["retention is held back", view({ holdsBackRetention: true }), "attention", /holds back retention/],
  ])("%s", (_, relay, level, says) => {
    const verdict = verdictOf([storeOf([relay])]);
    expect([verdict.level, verdict.text]).toEqual([level, expect.stringMatching(says)]);
  });

  test("what holds keys is told with its own error, though the relay had another one since", () => {
    const memory = { heldByDead: true, heldError: "no such account" };
    const { causes } = verdictOf([storeOf([view({ pending: 1, parked: 1, blockedKeys: 1, dead: 1 }, [], memory)])]);
    expect(causes[0]).toMatchObject({
      text: expect.stringContaining("1 dead letter blocks 1 key"),
      so: "no such account",
    });
  });

  test("a store that is down comes first, and how many more need a person is told", () => {
    const stores = [
      storeOf([view({ lanes: noProcess, pending: 7, oldestPendingAgeMs: MINUTE })]),
      storeOf([], { name: "t", down: { since: NOW - MINUTE, error: "refused" } }),
      storeOf([], { name: "u", unread: [{ stream: "lost", oldestAgeMs: MINUTE }] }),
    ];
    const verdict = verdictOf(stores);
    expect(verdict.text).toMatch(/And 1 more thing needs you\.$/);
    expect(verdict.causes.map(({ level }) => level)).toEqual(["bad", "bad", "attention"]);
    expect(verdict.causes.every(({ link, command }) => link !== null && command !== null)).toBe(true);
  });

  test("a consumer of which every delivery fails needs a person", () => {
    const consumer: ConsumerView = {
      store: "s",
      name: "c",
      level: "bad",
      words: "every delivery fails",
      perSecond: 0,
      failed: 3,
      lastError: "no",
      lastErrorAt: NOW,
    };
    expect(verdictOf([storeOf([view({})], { consumers: [consumer] })])).toMatchObject({
      level: "bad",
      text: "Consumer c: every delivery fails.",
    });
  });

  test("without a relay nothing is said to leave", () => {
    expect(verdictOf([storeOf([])])).toMatchObject({
      level: "unknown",
      text: "No relay has run yet, so nothing leaves.",
    });
  });
});
