import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../../src/core/contracts.ts";
import { BlockedKeys } from "../../../../src/stores/postgres/blocked-keys.ts";
import type { LogMessage } from "../../../../src/stores/postgres/log-message.ts";
import { SettleBatch } from "../../../../src/stores/postgres/settle-batch.ts";

const NOW = 1000;

function message(position: number, key: string | null = `key-${position}`): LogMessage {
  return { positionText: String(position), stream: "s", key, lane: 7 } as LogMessage;
}

const published: Outcome = { status: "published" };
const waiting: Outcome = { status: "waiting" };
const running: Outcome = { status: "running" };
const retry = (attempts: number): Outcome => ({ status: "retry", error: "no", delayMs: 50, attempts });
const dead = (block: boolean): Outcome => ({ status: "dead", error: "never", attempts: 3, block });
const postponed: Outcome = { status: "postponed", error: "away", delayMs: 20, route: "queue" };

function settled(messages: LogMessage[], outcomes: Outcome[]) {
  const keys = new BlockedKeys(new Set());
  const batch = new SettleBatch();
  batch.recordNew(messages, outcomes, keys, NOW);
  return { keys, batch };
}

describe("new messages", () => {
  test("that went through are counted, and nothing else is written", () => {
    const { batch, keys } = settled([message(1), message(2)], [published, published]);
    expect(batch).toMatchObject({ published: 2, messages: 2, plain: true });
    expect(keys.size).toBe(0);
  });

  test("that failed are parked, with those of their key behind them", () => {
    const { batch, keys } = settled(
      [message(1, "a"), message(2, "b"), message(3, "a")],
      [retry(1), published, waiting],
    );
    expect(batch).toMatchObject({ published: 1, messages: 3, plain: false });
    expect([...batch.park.keys()]).toEqual(["1", "3"]);
    expect(keys.parked).toBe(2);
    expect(keys.of(message(9, "a"))).toMatchObject({
      head: "1",
      attempts: 1,
      dueAt: NOW + 50,
      lastError: "no",
      parked: 2,
    });
    expect(keys.of(message(9, "b"))).toBeUndefined();
  });

  test("without a key are parked alone", () => {
    const { batch, keys } = settled([message(1, null), message(2, null)], [retry(1), retry(1)]);
    expect([...batch.park.values()]).toMatchObject([
      { key: "", solo: "1" },
      { key: "", solo: "2" },
    ]);
    expect(keys.size).toBe(2);
  });

  test("that can never work are dead, and hold their key only if told to", () => {
    const { batch, keys } = settled([message(1, "a"), message(2, "b")], [dead(true), dead(false)]);
    expect(batch.dead).toMatchObject([
      { position: "1", attempts: 3, block: true, error: "never" },
      { position: "2", attempts: 3, block: false },
    ]);
    expect(batch.park.size).toBe(0);
    expect(keys.of(message(9, "a"))).toMatchObject({ held: true, head: "1", parked: 0 });
    expect(keys.of(message(9, "b"))).toMatchObject({ held: false, head: undefined, parked: 0 });
  });

  test("whose target is out wait for their route, and no attempt is counted", () => {
    const { keys } = settled([message(1, "a")], [postponed]);
    expect(keys.of(message(9, "a"))).toMatchObject({ attempts: 0, route: "queue", dueAt: NOW + 20, parked: 1 });
  });

  test("whose attempt goes on are parked in front of what comes later", () => {
    const { batch, keys } = settled([message(1, "a"), message(2, "a")], [running, waiting]);
    expect([...batch.park.keys()]).toEqual(["1", "2"]);
    expect(keys.of(message(9, "a"))).toMatchObject({ head: "1", attempts: 0 });
  });
});

describe("parked messages that were tried again", () => {
  function parked() {
    const world = settled([message(1, "a"), message(2, "a")], [retry(1), waiting]);
    const batch = new SettleBatch();
    const entry = world.keys.of(message(1, "a"))!;
    const tried = (outcomes: Outcome[]): void =>
      batch.recordParked([message(1, "a"), message(2, "a")], [entry, entry], outcomes, world.keys, NOW + 100);
    return { ...world, batch, entry, tried };
  }

  test("leave when they are through, with the attempts of each", () => {
    const { batch, entry, keys, tried } = parked();
    tried([published, published]);
    expect(batch).toMatchObject({ published: 2, messages: 0, plain: false });
    expect(batch.gone).toEqual([
      { position: "1", attempts: 2, error: "no", published: true },
      { position: "2", attempts: 1, error: null, published: true },
    ]);
    expect(entry).toMatchObject({ parked: 0, head: undefined, attempts: 0, errors: [] });
    expect(keys.parked).toBe(0);
  });

  test("stay when they fail again, and are not parked twice", () => {
    const { batch, entry, keys, tried } = parked();
    tried([retry(2), waiting]);
    expect(batch.park.size).toBe(0);
    expect(batch.gone).toEqual([]);
    expect(entry).toMatchObject({ parked: 2, head: "1", attempts: 2, dueAt: NOW + 150 });
    expect(entry.errors.map(({ error }) => error)).toEqual(["no", "no"]);
    expect(keys.parked).toBe(2);
  });

  test("leave as dead letters, and the next of the key is first", () => {
    const { batch, entry, tried } = parked();
    tried([dead(false), waiting]);
    expect(batch.gone).toEqual([{ position: "1", attempts: 2, error: "no", published: false }]);
    expect(batch.dead).toMatchObject([{ position: "1", attempts: 3 }]);
    expect(entry).toMatchObject({ parked: 1, head: "2", attempts: 0, lastError: undefined });
  });

  test("parked and freed between two writes leave no row to insert", () => {
    const { batch, keys } = settled([message(1, "a")], [retry(1)]);
    const entry = keys.of(message(1, "a"))!;
    batch.recordParked([message(1, "a")], [entry], [published], keys, NOW + 60);
    expect(batch.park.size).toBe(0);
    expect(batch.gone).toMatchObject([{ position: "1" }]);
    expect(batch.changed).toContain(entry);
  });
});
