import { claimDocuments } from "./claims.ts";
import type { Hold } from "./lease.ts";
import type { SettleOperations } from "./settle-operations.ts";
import type { Table } from "./table.ts";

/** One after the other, a thousand updates take the server longer than a thousand messages by the stream. */
const PARALLEL = 2;
const WORTH_PARTING = 200;

/**
 * What came by the change stream was held without a write, so no token keeps a late settle of it out: the end of the
 * lease does, as with a claim. How many were written; what an earlier try has written is known by the token.
 */
export async function settleStreamed(
  outbox: Table,
  { streamed, token }: SettleOperations,
  hold: Hold,
): Promise<number> {
  const size = streamed.length < WORTH_PARTING ? streamed.length : Math.ceil(streamed.length / PARALLEL);
  const writes: Promise<number>[] = [];
  for (let from = 0; from < streamed.length; from += size) {
    writes.push(markDone(outbox, streamed.slice(from, from + size), token, hold));
  }
  // When one fails, the others are waited for: a second try must not meet a write that is under way.
  await Promise.allSettled(writes);
  return (await Promise.all(writes)).reduce((sum, matched) => sum + matched, 0);
}

async function markDone(
  outbox: Table,
  ids: readonly unknown[],
  token: string,
  { relay, fence }: Hold,
): Promise<number> {
  const { matchedCount } = await outbox.updateMany(
    { _id: { $in: ids }, waits: "ready", status: "new", $expr: { $lt: ["$$NOW", fence.until] } },
    {
      $set: { status: "done", relay, lease_token: token },
      $unset: { waits: 1 },
      $inc: { attempts: 1 },
      $currentDate: { published_at: true },
    },
    { maxTimeMS: fence.maxTimeMS, hint: { _id: 1 } },
  );
  return matchedCount;
}

/** What did not go through is claimed, so that it can be settled as any other claim. False: it is another's. */
export async function claimLate(outbox: Table, { late, token }: SettleOperations, hold: Hold): Promise<boolean> {
  const ids = late.map(({ ref }) => ref);
  const claimed = await claimDocuments(outbox, ids, { ...hold, from: "ready", alone: false, token });
  const mine = claimed === ids.length || (await outbox.count({ _id: { $in: ids }, lease_token: token })) === ids.length;
  if (mine) for (const message of late) message.token = token;
  return mine;
}
