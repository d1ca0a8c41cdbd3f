import type { PreparedMessage } from "../../core/contracts.ts";
import type { Document, MongoSession } from "./mongodb-client.ts";
import type { Table } from "./table.ts";

/** Positions per millisecond, so that they stay near the time for everything but the wildest bursts. */
export const PER_MS = 1000;

export interface Positions {
  /** The first of as many positions as there are messages. */
  first: number;
  /** The server's time where it was asked, else this process's. */
  now: Date;
}

/** The id of a key's sequence. No stream holds a NUL. */
export function sequenceId(stream: string, key: string): string {
  return `${stream}\0${key}`;
}

/**
 * Gives out positions that rise within each key. A key's sequence is raised in the writer's own transaction, so that
 * two writers of a key collide and the later commit has the later position: no clock decides. It is raised to at least
 * the server's time, so that positions of different keys are near the order of their times.
 */
export async function nextPositions(
  sequences: Table,
  messages: readonly Pick<PreparedMessage, "stream" | "key">[],
  session: MongoSession | undefined,
  options: Document = {},
): Promise<Positions> {
  const count = messages.length;
  const ids = [...new Set(messages.flatMap(({ stream, key }) => (key === null ? [] : [sequenceId(stream, key)])))];
  const now = new Date();
  const [only] = ids;
  if (only === undefined) return { first: now.getTime() * PER_MS, now };
  const scope = { ...options, ...(session === undefined ? {} : { session }) };
  if (ids.length === 1) {
    const raised = await sequences.findOneAndUpdate({ _id: only }, raise(count), {
      ...scope,
      upsert: true,
      returnDocument: "after",
    });
    return { first: seqOf(raised) - count + 1, now: dateOf(raised) };
  }
  const each = ids.map((_id) => ({ updateOne: { filter: { _id }, update: raise(count), upsert: true } }));
  await sequences.bulkWrite(each, { ...scope, ordered: false });
  const raised = await sequences.find({ _id: { $in: ids } }, scope);
  const seqs = raised.map(seqOf);
  const last = Math.max(...seqs);
  // Keys whose sequence was behind another's would otherwise give the same positions again.
  if (seqs.some((seq) => seq < last)) {
    await sequences.updateMany({ _id: { $in: ids }, seq: { $lt: last } }, { $set: { seq: BigInt(last) } }, scope);
  }
  return { first: last - count + 1, now: dateOf(raised[0] ?? null) };
}

function raise(count: number): Document[] {
  const time = { $multiply: [{ $toLong: "$$NOW" }, PER_MS] };
  return [{ $set: { seq: { $add: [{ $max: ["$seq", time] }, count] }, at: "$$NOW" } }];
}

function seqOf(document: Document | null): number {
  return Number(document?.["seq"]);
}

function dateOf(document: Document | null): Date {
  return document?.["at"] as Date;
}
