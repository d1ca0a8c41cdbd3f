import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../src/core/contracts.ts";
import { BlockedKeys } from "../../../src/lanes/blocked-keys.ts";
import type { Stored } from "../../../src/lanes/lane-port.ts";
import { SettlementDraft } from "../../../src/lanes/settlement-draft.ts";

const NOW = 1000;
const OPTIONS = { clearCrashes: false, mayOpenNext: true, isFollowed: () => false };

const published: Outcome = { status: "published" };
const waiting: Outcome = { status: "waiting" };
const running: Outcome = { status: "running" };
const retry = (attempts: number): Outcome => ({ status: "retry", error: "no", delayMs: 50, attempts });
const dead = (block: boolean): Outcome => ({ status: "dead", error: "never", attempts: 3, block });
const postponed: Outcome = { status: "postponed", error: "away", delayMs: 20, route: "queue" };

function message(n: number, key: string | null = `key-${n}`): Stored {
  return { ref: n, stream: "s", key, lane: 7 } as Stored;
}

function drafting() {
  const keys = new BlockedKeys(["loose"]);
  const draft = new SettlementDraft<Stored, string>(keys);
  const none = { attempts: undefined, detached: new Set<never>() };
  return {
    keys,
    draft,
    settlement: () => draft.settlement(NOW, OPTIONS),
    settleNew: (messages: Stored[], outcomes: Outcome[]) =>
      draft.record({ ...none, messages, page: { mark: "m" }, keys: [], entries: [] }, outcomes, NOW),
    settleParked: (messages: Stored[], outcomes: Outcome[], into: typeof draft = draft, attempts?: number[]) => {
      const entries = messages.map((one) => keys.of(one)!);
      into.record(
        { ...none, attempts, messages, page: undefined, keys: [...new Set(entries)], entries },
        outcomes,
        NOW,
      );
    },
  };
}

const refs = (those: readonly { message: Stored }[]) => those.map((one) => one.message.ref);

describe("new messages", () => {
  test("that went through are a page, and nothing else is written", () => {
    const { settleNew, settlement, keys } = drafting();
    const messages = [message(1), message(2)];
    settleNew(messages, [published, published]);
    const written = settlement();
    expect(written).toMatchObject({ published: 2, park: [], unpark: [], dead: [], block: [], mayOpenNext: true });
    expect(written.pages).toEqual([{ mark: "m", messages, published: messages, complete: true }]);
    expect(keys.size).toBe(0);
  });

  test("that failed are parked, with those of their key behind them", () => {
    const { settleNew, settlement, keys } = drafting();
    settleNew([message(1, "a"), message(2, "b"), message(3, "a")], [retry(1), published, waiting]);
    const written = settlement();
    expect(written.published).toBe(1);
    expect(refs(written.park)).toEqual([1, 3]);
    expect(written.mayOpenNext).toBe(false);
    expect(written.block).toMatchObject([{ key: "a", head: 1, attempts: 1, dueInMs: 50, parked: 2, errors: ["no"] }]);
    expect(keys.of(message(9, "b"))).toBeUndefined();
  });

  test("without a key, or of a stream that needs no order, are parked alone", () => {
    const { settleNew, settlement, keys } = drafting();
    settleNew([message(1, null), { ...message(2, "k"), stream: "loose" }], [retry(1), retry(1)]);
    expect(settlement().block).toMatchObject([
      { key: null, single: 1 },
      { key: null, single: 2 },
    ]);
    expect(keys.size).toBe(2);
  });

  test("that can never work are dead, and hold their key only if told to", () => {
    const { settleNew, settlement, keys, draft } = drafting();
    settleNew([message(1, "a"), message(2, "b")], [dead(true), dead(false)]);
    const written = settlement();
    expect(written.dead).toMatchObject([{ block: true }, { block: false }]);
    expect(written.block).toMatchObject([{ key: "a", held: true, head: 1 }]);
    draft.written();
    expect(keys.has(message(9, "a"))).toBe(true);
    expect(keys.has(message(9, "b"))).toBe(false);
  });

  test("whose target is out wait for their route, and no attempt is counted", () => {
    const { settleNew, keys } = drafting();
    settleNew([message(1, "a")], [postponed]);
    expect(keys.of(message(1, "a"))).toMatchObject({ attempts: 0, route: "queue", dueAt: NOW + 20, lastError: "away" });
  });

  test("of an incomplete claim are settled as far as they go", () => {
    const { settleNew, settlement } = drafting();
    settleNew([message(1), message(2)], [published]);
    expect(settlement().pages).toMatchObject([{ messages: [{ ref: 1 }], complete: false }]);
  });
});

describe("parked messages", () => {
  function parked(...outcomes: Outcome[]) {
    const world = drafting();
    world.settleNew([message(1, "a"), message(2, "a")], outcomes);
    world.settlement();
    world.draft.written();
    return { ...world, next: new SettlementDraft<Stored, string>(world.keys) };
  }

  test("leave when they are through, with the attempts of each, and their key with the last", () => {
    const { settleParked, next, keys } = parked(retry(1), waiting);
    settleParked([message(1, "a"), message(2, "a")], [published, published], next, [1, 0]);
    const written = next.settlement(NOW, OPTIONS);
    expect(written.unpark).toMatchObject([
      { published: true, attempts: 2, lastError: "no" },
      { published: true, attempts: 1, lastError: undefined },
    ]);
    expect(written.unblock).toMatchObject([{ key: "a" }]);
    expect(keys.has(message(3, "a")), "until it is written, another owner could deliver them again").toBe(true);
    next.written();
    expect(keys.size).toBe(0);
    expect(keys.parked).toBe(0);
  });

  test("stay when they fail again, and are not parked twice", () => {
    const { settleParked, next, keys } = parked(retry(1), waiting);
    settleParked([message(1, "a"), message(2, "a")], [retry(2), waiting], next, [1, 0]);
    const written = next.settlement(NOW, OPTIONS);
    expect(written.park).toEqual([]);
    expect(refs(written.retried)).toEqual([1, 2]);
    expect(keys.parked).toBe(2);
    expect(written.block).toMatchObject([{ attempts: 2, head: 1 }]);
  });

  test("leave as dead letters, and the next of the key is first", () => {
    const { settleParked, next } = parked(retry(1), waiting);
    settleParked([message(1, "a"), message(2, "a")], [dead(false), waiting], next, [1, 0]);
    const written = next.settlement(NOW, OPTIONS);
    expect(written.unpark).toMatchObject([{ published: false }]);
    expect(written.dead).toHaveLength(1);
    expect(written.block).toMatchObject([{ head: 2, attempts: 0, parked: 1, held: false }]);
  });

  test("parked and freed between two writes are never parked", () => {
    const { settleNew, settlement, draft, keys } = drafting();
    const one = message(1, "a");
    settleNew([one], [running]);
    const key = keys.of(one)!;
    const claim = {
      messages: [one],
      attempts: [0],
      page: undefined,
      keys: [key],
      entries: [key],
      detached: new Set<never>(),
    };
    draft.record(claim, [published], NOW);
    const written = settlement();
    expect(written.park).toEqual([]);
    expect(written.unpark).toMatchObject([{ published: true, attempts: 1 }]);
    expect(written.unblock).toEqual([]);
    draft.written();
    expect(keys.size).toBe(0);
  });

  test("whose key another settlement changes are not handed out before that is written", () => {
    const { keys, next, settleParked, draft } = parked(retry(1), waiting);
    settleParked([message(1, "a")], [retry(2)], next, [1]);
    expect(keys.due(NOW + 1_000_000, 10)).toEqual([]);
    next.settlement(NOW, OPTIONS);
    next.written();
    expect(keys.due(NOW + 1_000_000, 10)).toHaveLength(1);
    expect(draft.tried).toEqual({ new: 1, retry: 0 });
  });
});
