import type { Activity, History, Sample, SampleCounts, SampleQuery } from "../../core/contracts.ts";
import { SAMPLE_COUNTS } from "../../core/sample-counts.ts";
import { uuidv7 } from "../../core/uuid.ts";
import type { Document } from "./mongodb-client.ts";
import type { Tables } from "./mongodb-names.ts";

/** Samples are kept this long. */
export const SAMPLES_MS = 86_400_000;
const EVERY_MS = 10_000;

export function createHistory({ samples }: Tables): History {
  return {
    async record({ of, owner, lastError, ...counts }) {
      const [part, name] = "relay" in of ? ["relay", of.relay] : ["consumer", of.consumer];
      const error =
        lastError === undefined
          ? {}
          : {
              last_error: { $literal: lastError.error },
              last_error_at: { $subtract: ["$$NOW", { $literal: lastError.agoMs }] },
            };
      const fields = { part, name: { $literal: name }, owner: { $literal: owner }, ...counts, ...error, at: "$$NOW" };
      await samples.updateOne({ _id: uuidv7() }, [{ $set: fields }], { upsert: true, writeConcern: { w: 1 } });
    },
  };
}

const LAST_ERROR = {
  $max: { $cond: [{ $gt: ["$last_error_at", null] }, { at: "$last_error_at", error: "$last_error" }, null] },
};

/** All processes of a relay or consumer together, ten seconds by ten seconds. */
export async function readSamples({ samples }: Tables, query: SampleQuery): Promise<Sample[]> {
  const { relay, consumer, since, until } = query;
  const of =
    relay !== undefined
      ? { part: "relay", name: relay }
      : consumer !== undefined
        ? { part: "consumer", name: consumer }
        : {};
  const ms = { $toLong: "$at" };
  const bucket = { $toDate: { $subtract: [ms, { $mod: [ms, EVERY_MS] }] } };
  const sums = Object.fromEntries(SAMPLE_COUNTS.map((count) => [count, { $sum: `$${count}` }]));
  const rows = await samples.aggregate([
    { $match: { ...of, at: { $gte: since, ...(until === undefined ? {} : { $lt: until }) } } },
    { $group: { _id: { at: bucket, part: "$part", name: "$name" }, ...sums, last: LAST_ERROR } },
    { $sort: { "_id.at": 1, "_id.part": -1, "_id.name": 1 } },
  ]);
  return rows.map((row) => ({
    ...ofRow(row),
    at: (row["_id"] as { at: Date }).at,
    ...(Object.fromEntries(SAMPLE_COUNTS.map((count) => [count, Number(row[count])])) as unknown as SampleCounts),
    ...lastError(row),
  }));
}

/** Samples of the last minute, and those of the day that have an error: an index has each of them. */
export async function readActivity({ samples }: Tables): Promise<Activity[]> {
  const of = { part: "$part", name: "$name" };
  const [lately, failed] = await Promise.all([
    samples.aggregate([
      { $match: { $expr: { $gt: ["$at", { $subtract: ["$$NOW", 60_000] }] } } },
      { $group: { _id: of, count: { $sum: { $add: ["$published", "$processed"] } } } },
    ]),
    samples.aggregate([{ $match: { last_error: { $gt: "" } } }, { $group: { _id: of, last: LAST_ERROR } }], {
      hint: "txbox_errors",
    }),
  ]);
  const all = new Map<string, Activity>();
  for (const row of [...failed, ...lately]) {
    const place = ofRow(row);
    const name = JSON.stringify(place);
    const before = all.get(name) ?? { ...place, perSecond: 0, ...lastError(row) };
    all.set(name, { ...before, perSecond: Number(row["count"] ?? 0) / 60 });
  }
  return [...all].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, activity]) => activity);
}

function ofRow(row: Document): { relay: string | null; consumer: string | null } {
  const { part, name } = row["_id"] as { part: string; name: string };
  return part === "relay" ? { relay: name, consumer: null } : { relay: null, consumer: name };
}

function lastError(row: Document): { lastError: string | null; lastErrorAt: Date | null } {
  const last = row["last"] as { at: Date; error: string } | null | undefined;
  return { lastError: last?.error ?? null, lastErrorAt: last?.at ?? null };
}
