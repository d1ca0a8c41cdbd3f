import type { Document } from "./mongodb-client.ts";
import type { StoredMessage } from "./mongodb-document.ts";
import type { LaneView } from "./mongodb-ownership.ts";
import type { Table } from "./table.ts";

const whole = (field: string): Document => ({ $convert: { input: field, to: "int", onError: 0, onNull: 0 } });

/**
 * Takes back what earlier owners of these lanes had claimed: from here on their settles find nothing that is theirs.
 * Messages with an order go behind each other among the parked ones of their key, whatever half of a settle was
 * written. How many there were.
 */
export async function takeBack(
  outbox: Table,
  relay: string,
  lanes: readonly LaneView[],
  unordered: readonly string[],
): Promise<number> {
  let released = 0;
  for (const died of [true, false]) {
    const those = lanes.filter(({ stale }) => stale.some((one) => one.died === died));
    if (those.length === 0) continue;
    const owners = [...new Set(those.flatMap(({ stale }) => stale.filter((one) => one.died === died)))];
    released += await takeBackOf(outbox, {
      relay,
      lanes: those.map(({ lane }) => lane),
      owners: owners.map(({ owner }) => owner),
      unordered,
      died,
    });
  }
  return released;
}

/**
 * Attempts that go on while their process loads everything anew stay claimed, under its new name. Their documents, as
 * they are then.
 */
export async function keepClaimed(
  outbox: Table,
  messages: readonly StoredMessage[],
  { relay, lanes, owner }: { relay: string; lanes: readonly number[]; owner: string },
): Promise<Document[]> {
  if (messages.length === 0) return [];
  const tokens = [...new Set(messages.map(({ token }) => token))];
  const those = { _id: { $in: messages.map(({ ref }) => ref) }, lease_token: { $in: tokens }, status: "processing" };
  await outbox.updateMany({ ...those, relay, lane: { $in: lanes } }, { $set: { lease_owner: owner } });
  return outbox.find({ ...those, lease_owner: owner });
}

export interface TakeBackOptions {
  relay: string;
  lanes: readonly number[];
  owners: readonly string[];
  unordered: readonly string[];
  /** The owner died with them in hand, which counts against a message that it tried alone. */
  died: boolean;
}

export async function takeBackOf(outbox: Table, options: TakeBackOptions): Promise<number> {
  const { relay, lanes, owners, unordered, died } = options;
  const theirs = { status: "processing", lease_owner: { $in: owners }, relay, lane: { $in: lanes } };
  return (await outbox.updateMany(theirs, releasedBy(unordered, died))).matchedCount;
}

export interface ForgottenOptions {
  relay: string;
  lanes: readonly number[];
  /** All processes that may have something in hand. */
  members: readonly string[];
}

/**
 * Documents held by a process that is no longer a member, though the lane has another owner. No way is known in which
 * this can come about; a lease that has run out is reason enough to take them back.
 */
export function forgotten({ relay, lanes, members }: ForgottenOptions): Document {
  return {
    status: "processing",
    lease_owner: { $nin: members },
    relay,
    lane: { $in: lanes },
    $expr: { $lt: ["$lease_until", "$$NOW"] },
  };
}

export async function takeBackForgotten(
  outbox: Table,
  options: ForgottenOptions,
  unordered: readonly string[],
): Promise<number> {
  return (await outbox.updateMany(forgotten(options), releasedBy(unordered, false))).matchedCount;
}

function releasedBy(unordered: readonly string[], died: boolean): Document[] {
  const failed = { $gt: [whole("$attempts"), whole("$earlier_attempts")] };
  const loose = { $or: [{ $eq: [{ $ifNull: ["$key", null] }, null] }, { $in: ["$stream", { $literal: unordered }] }] };
  const crashes = { $add: [whole("$crashes"), { $cond: [{ $eq: ["$alone", true] }, 1, 0] }] };
  return [
    {
      $set: {
        status: { $cond: [failed, "failed", "new"] },
        waits: { $cond: [{ $and: [loose, { $not: failed }] }, "ready", "parked"] },
        lease_owner: null,
        lease_until: null,
        lease_token: null,
        ...(died ? { crashes } : {}),
      },
    },
    { $unset: "alone" },
  ];
}
