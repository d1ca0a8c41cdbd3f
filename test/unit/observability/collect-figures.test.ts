import * as client from "prom-client";
import { describe, expect, it } from "vitest";
import type { RelayFigures, StoreFigures } from "../../../src/core/contracts.ts";
import { collectFigures } from "../../../src/observability/prometheus/index.ts";
import { within } from "../../../src/testing/eventually.ts";

const relay: RelayFigures = {
  name: "r",
  streams: null,
  paused: false,
  lanes: [{ owner: "me", lanes: 64, leaseMs: 1000, epoch: 1n }],
  published: 5n,
  pending: 7,
  pendingEstimated: false,
  oldestPendingAgeMs: 2500,
  parked: 2,
  blockedKeys: 1,
  dead: 3,
  holdsBackRetention: true,
};
const figures: StoreFigures = {
  relays: [relay, { ...relay, name: "local", streams: ["inbox.c"], oldestPendingAgeMs: null, lanes: [], paused: true }],
  activity: [],
  scheduled: { count: 4, estimated: false, nextAt: null },
  unread: [{ stream: "lost", oldestAgeMs: 60_000 }],
  unarchivedSegments: 2,
  logBytes: 8192,
  receiptBytes: 4096,
  failedReceipts: [{ consumer: "c", count: 6 }],
};

const never = undefined as never;

function collecting(look: () => Promise<StoreFigures>, more: { everyMs?: number; deadlineMs?: number } = {}) {
  const registry = new client.Registry();
  const errors: unknown[] = [];
  const store = { admin: { figures: look } };
  collectFigures({ client, registry, store, everyMs: 0, onError: (error) => errors.push(error), ...more });
  const scrape = async () => (await registry.metrics()).split("\n").filter((line) => line !== "" && line[0] !== "#");
  return { scrape, errors };
}

describe("collectFigures", () => {
  it("shows the figures of the store, those of a stored inbox under both names", async () => {
    const { scrape } = collecting(() => Promise.resolve(figures));
    const lines = await scrape();
    expect(lines).toEqual(
      expect.arrayContaining([
        'outbox_pending_records{relay="r"} 7',
        'outbox_oldest_pending_age_seconds{relay="r"} 2.5',
        'outbox_lag_seconds{relay="r"} 2.5',
        'outbox_parked_records{relay="r"} 2',
        'outbox_blocked_keys{relay="r"} 1',
        'outbox_dead_records{relay="r"} 3',
        'outbox_relay_paused{relay="r"} 0',
        'outbox_relay_paused{relay="local"} 1',
        'outbox_relay_processes{relay="r"} 1',
        'outbox_relay_processes{relay="local"} 0',
        'outbox_retention_held_back{relay="r"} 1',
        "outbox_scheduled_records 4",
        'outbox_unread_oldest_age_seconds{stream="lost"} 60',
        "outbox_unarchived_segments 2",
        "outbox_log_bytes 8192",
        "inbox_receipt_bytes 4096",
        'inbox_failed_records{consumer="c"} 6',
        'inbox_pending_records{consumer="c"} 7',
        'inbox_lag_seconds{consumer="c"} 0',
        "txbox_up 1",
      ]),
    );
    expect(lines.filter((line) => line.startsWith("inbox_pending_records"))).toHaveLength(1);
  });

  it("answers while the store is away, with txbox_up 0 and no figures, and tells of it once", async () => {
    let away = false;
    const { scrape, errors } = collecting(() => (away ? Promise.reject(new Error("gone")) : Promise.resolve(figures)));
    expect(await scrape()).toContain("txbox_up 1");
    away = true;
    expect(await scrape()).toEqual(["txbox_up 0"]);
    expect(await scrape()).toEqual(["txbox_up 0"]);
    expect(errors).toEqual([new Error("gone")]);
    away = false;
    expect(await scrape()).toContain('outbox_pending_records{relay="r"} 7');
    away = true;
    await scrape();
    expect(errors).toHaveLength(2);
  });

  it("answers in time when the store hangs", async () => {
    const { scrape, errors } = collecting(() => new Promise(() => undefined), { deadlineMs: 50 });
    expect(await within(10_000, "an answer", scrape())).toEqual(["txbox_up 0"]);
    expect(String(errors[0])).toContain("did not give its figures within 50 ms");
  });

  it("begins no other look while the one before goes on, and takes its answer", async () => {
    let looks = 0;
    const { promise, resolve } = Promise.withResolvers<StoreFigures>();
    const look = () => (looks++, promise);
    const { scrape } = collecting(look, { deadlineMs: 20 });
    for (let i = 0; i < 3; i++) expect(await scrape()).toEqual(["txbox_up 0"]);
    expect(looks).toBe(1);
    resolve(figures);
    expect(await scrape()).toContain("txbox_up 1");
  });

  it("looks once for scrapes that come together or soon after each other", async () => {
    let looks = 0;
    const look = () => Promise.resolve({ ...figures, logBytes: ++looks });
    const { scrape } = collecting(look, { everyMs: 60_000 });
    const scrapes = await Promise.all([scrape(), scrape()]);
    const later = await scrape();
    expect(looks).toBe(1);
    for (const lines of [...scrapes, later]) expect(lines).toContain("outbox_log_bytes 1");
    expect(later.some((line) => line.startsWith("txbox_figures_age_seconds"))).toBe(true);
  });

  it("forgets relays and streams that are gone", async () => {
    let now = figures;
    const { scrape } = collecting(() => Promise.resolve(now));
    await scrape();
    now = { ...figures, relays: [], unread: [], failedReceipts: null };
    const lines = await scrape();
    expect(lines.filter((line) => line.includes("{"))).toEqual([]);
    expect(lines).toContain("txbox_up 1");
  });

  it.each([
    [{ client, store: {} }, /store.admin.figures must be a function/],
    [{ client, store: { admin: { figures: () => never } }, everyMs: -1 }, /everyMs must be a whole number/],
    [{ client, store: { admin: { figures: () => never } }, every: 1 }, /Did you mean "everyMs"/],
  ])("refuses %o", (options, message) => {
    expect(() => collectFigures(options as never)).toThrow(message);
  });
});
