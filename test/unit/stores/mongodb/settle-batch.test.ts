import { describe, expect, test } from "vitest";
import type { Outcome } from "../../../../src/core/contracts.ts";
import { BlockedKeys } from "../../../../src/stores/mongodb/blocked-keys.ts";
import type { MongoClaim } from "../../../../src/stores/mongodb/claims.ts";
import { StoredMessage } from "../../../../src/stores/mongodb/mongodb-document.ts";
import { SettleBatch } from "../../../../src/stores/mongodb/settle-batch.ts";

const NOW = 1000;
const SERVER_NOW = 1_800_000_000_000;

const message = (id: string, key: string | null = `key-${id}`): StoredMessage =>
  new StoredMessage({ _id: id, stream: "s", event_type: "t", key, payload: {}, lane: 7, position: 1n, attempts: 1 });

function claim(messages: StoredMessage[], more: Partial<MongoClaim> = {}): MongoClaim {
  const rest = { generation: 1, keys: [], entries: [], streamed: undefined, detached: new Map<number, MongoClaim>() };
  const none = { attempts: undefined, alone: false, crashes: 0 };
  return { kind: "new", messages, token: "token", ...none, ...rest, ...more };
}

const published: Outcome = { status: "published" };
const waiting: Outcome = { status: "waiting" };
const retry: Outcome = { status: "retry", error: "no", delayMs: 50, attempts: 1 };
const dead: Outcome = { status: "dead", error: "never", attempts: 3, block: true };

function settled(given: MongoClaim, outcomes: Outcome[]) {
  const keys = new BlockedKeys(new Set());
  const batch = new SettleBatch();
  batch.record(given, outcomes, keys, NOW, SERVER_NOW);
  return { keys, batch };
}

/** The filter of every write of a batch. */
function filters(batch: SettleBatch): Record<string, unknown>[] {
  return batch.operations().map((operation) => {
    const [write] = Object.values(operation) as { filter: Record<string, unknown> }[];
    return write!.filter;
  });
}

describe("a settle", () => {
  test("of what went through is one write, whatever their number", () => {
    const { batch, keys } = settled(claim([message("1"), message("2"), message("3")]), [
      published,
      published,
      published,
    ]);
    expect(batch).toMatchObject({ published: 3, dead: [], ids: ["1", "2", "3"] });
    expect(filters(batch)).toEqual([
      { _id: { $in: ["1", "2", "3"] }, lease_token: { $in: ["token"] }, status: "processing" },
    ]);
    expect(keys.size).toBe(0);
  });

  test("names the token in every write, so that what was taken back is left alone", () => {
    const messages = ["1", "2", "3", "4"].map((id) => message(id, id === "4" ? "key-2" : undefined));
    const { batch } = settled(claim(messages), [published, retry, dead, waiting]);
    expect(filters(batch)).toHaveLength(4);
    for (const filter of filters(batch)) {
      expect(filter).toMatchObject({ status: "processing" });
      expect(["token", { $in: ["token"] }]).toContainEqual(filter["lease_token"]);
    }
  });

  test("of what failed parks it with those behind it, and says when it is due", () => {
    const { batch, keys } = settled(claim([message("1", "a"), message("2", "a")]), [retry, waiting]);
    expect(keys.parked).toBe(2);
    expect(keys.named("s", "a")).toMatchObject({ dueAt: NOW + 50, parked: 2, held: false, writes: 1 });
    expect(batch.touched.size).toBe(1);
  });

  test("of what can never work holds its key when told to", () => {
    const { batch, keys } = settled(claim([message("1", "a")]), [dead]);
    expect(batch.dead).toEqual(["1"]);
    expect(keys.named("s", "a")).toMatchObject({ held: true, parked: 0 });
  });

  test("of the change stream leaves what went through to the settle, and claims the rest late", () => {
    const streamed = { time: {} } as NonNullable<MongoClaim["streamed"]>;
    const { batch } = settled(claim([message("1"), message("2")], { streamed }), [published, retry]);
    expect(batch).toMatchObject({ streamed: ["1"], late: ["2"], streamEnds: [streamed], published: 1 });
    expect([...batch.tokens]).toEqual([batch.token]);
    expect(filters(batch)).toEqual([{ _id: "2", lease_token: batch.token, status: "processing" }]);
  });

  test("of a part of a claim does not move the stream", () => {
    const streamed = { time: {} } as NonNullable<MongoClaim["streamed"]>;
    const { batch } = settled(claim([message("1"), message("2")], { streamed }), [published]);
    expect(batch.streamEnds).toEqual([]);
  });

  test("of a key that was tried again drains it, and lets it go once it is empty", () => {
    const { keys } = settled(claim([message("1", "a")]), [retry]);
    const entry = keys.named("s", "a")!;
    const batch = new SettleBatch();
    const again = claim([message("1", "a")], { kind: "retry", keys: [entry], entries: [entry] });
    batch.record(again, [published], keys, NOW + 60, SERVER_NOW);
    expect([...batch.drained]).toEqual([entry]);
    expect(entry).toMatchObject({ parked: 0, writes: 2 });
    entry.writes = 0;
    keys.freeIfEmpty(entry);
    expect(keys.size).toBe(0);
  });

  test("of an attempt that goes on writes nothing of the message, and its key waits", () => {
    const { batch, keys } = settled(claim([message("1", "a")]), [{ status: "running" }]);
    expect(batch.ids).toEqual([]);
    expect(batch.operations()).toEqual([]);
    expect(keys.named("s", "a")).toMatchObject({ parked: 1 });
  });
});
