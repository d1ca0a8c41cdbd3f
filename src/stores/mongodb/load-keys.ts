import type { StoredKey } from "../../lanes/lane-port.ts";
import type { Document } from "./mongodb-client.ts";
import type { Tables } from "./mongodb-names.ts";

export interface LoadOptions {
  relay: string;
  lanes: readonly number[];
  unordered: readonly string[];
  /** Time until then, by the server's clock. */
  inMs: (time: Date) => number;
  /** Documents of attempts that go on: they wait with their keys, though they are claimed. */
  ongoing: readonly Document[];
}

/** What waits in these lanes: keys with parked messages, due when their first one is, and keys that a dead letter holds. */
export async function loadKeys({ outbox, dead }: Tables, options: LoadOptions): Promise<StoredKey[]> {
  const { relay, lanes, unordered, inMs } = options;
  const missing = { $eq: [{ $ifNull: ["$key", null] }, null] };
  const single = { $cond: [{ $or: [missing, { $in: ["$stream", { $literal: unordered }] }] }, "$_id", null] };
  const groups = await outbox.aggregate([
    { $match: { waits: "parked", relay, lane: { $in: lanes } } },
    { $sort: { lane: 1, stream: 1, key: 1, position: 1 } },
    {
      $group: {
        _id: { lane: "$lane", stream: "$stream", key: "$key", single },
        parked: { $sum: 1 },
        status: { $first: "$status" },
        next: { $first: "$next_retry_at" },
      },
    },
  ]);
  const keys = new Map<string, StoredKey>();
  for (const { _id, parked, status, next } of groups) {
    const place = _id as Document;
    const key = keyAt(place, place["single"] === null);
    const dueInMs = status === "failed" && next instanceof Date ? inMs(next) : 0;
    keys.set(nameOf(key), { ...key, dueInMs, parked: Number(parked) });
  }
  for (const document of options.ongoing) {
    const ordered = typeof document["key"] === "string" && !unordered.includes(String(document["stream"]));
    const key = keyAt({ ...document, single: document["_id"] }, ordered);
    const known = keys.get(nameOf(key)) ?? key;
    keys.set(nameOf(key), { ...known, parked: known.parked + 1 });
  }
  const holding = await dead.find({ relay, blocks: true, state: "dead", lane: { $in: lanes } });
  for (const letter of holding) {
    if (typeof letter["key"] !== "string" || unordered.includes(String(letter["stream"]))) continue;
    const key = keyAt(letter, true);
    keys.set(nameOf(key), { ...(keys.get(nameOf(key)) ?? key), held: true });
  }
  return [...keys.values()];
}

function keyAt({ lane, stream, key, single }: Document, ordered: boolean): StoredKey {
  return {
    lane: lane as number,
    stream: String(stream),
    key: ordered ? String(key) : null,
    single: ordered ? null : single,
    // Attempts and errors are in the documents.
    head: undefined,
    attempts: 0,
    lastError: undefined,
    parked: 0,
    dueInMs: 0,
    held: false,
  };
}

function nameOf({ stream, key, single }: StoredKey): string {
  return key === null ? `\0${String(single)}` : `${stream}\0${key}`;
}
