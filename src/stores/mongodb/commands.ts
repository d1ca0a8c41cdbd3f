import { messageFields } from "./dead-letters.ts";
import { contentsStep } from "./edited-document.ts";
import type { Fence } from "./lease.ts";
import type { Document } from "./mongodb-client.ts";
import type { Tables } from "./mongodb-names.ts";

const BATCH = 1000;

export interface CommandOptions {
  relay: string;
  lanes: readonly number[];
}

const waitingFor = ({ relay, lanes }: CommandOptions): Document => ({
  relay,
  command: { $type: "string" },
  lane: { $in: lanes },
});

export async function hasCommands({ dead }: Tables, options: CommandOptions): Promise<boolean> {
  return (await dead.findOne(waitingFor(options), { projection: { _id: 1 } })) !== null;
}

/**
 * Carries out what operators asked for, as the owner of the lanes, with nothing in hand. What comes too late for the
 * lease changes nothing, and the command stays for the next owner.
 */
export async function carryOutCommands(tables: Tables, options: CommandOptions, fence: Fence): Promise<void> {
  const letters = await tables.dead.find(waitingFor(options), { sort: { position: 1 }, limit: BATCH });
  const asked = (command: string) => letters.filter((letter) => letter["command"] === command);
  const back = asked("requeue").length === 0 ? [] : await requeue(tables, asked("requeue"), options.relay, fence);
  await finish(tables, back, "requeue", "requeued", fence);
  const given = asked("discard").map(({ _id }) => _id);
  await finish(tables, given, "discard", "discarded", fence);
}

async function finish({ dead }: Tables, ids: readonly unknown[], command: string, state: string, fence: Fence) {
  if (ids.length === 0) return;
  await dead.updateMany(
    { _id: { $in: ids }, command, state: "dead", ...inTime(fence) },
    { $set: { state, command: null, blocks: false }, $currentDate: { changed_at: true } },
    { maxTimeMS: fence.maxTimeMS },
  );
}

const inTime = ({ until }: Fence): Document => ({ $expr: { $lt: ["$$NOW", until] } });

/** Back among the parked ones of their key, at their old positions: before everything that came later. Which are back. */
async function requeue(
  tables: Tables,
  letters: readonly Document[],
  relay: string,
  fence: Fence,
): Promise<readonly unknown[]> {
  const ids = letters.map(({ _id }) => _id);
  const there = new Set(
    (await tables.outbox.find({ _id: { $in: ids } }, { projection: { _id: 1 } })).map(({ _id }) => String(_id)),
  );
  const gone = letters.filter(({ _id }) => !there.has(String(_id)));
  if (gone.length > 0) {
    await tables.outbox.insertMany(
      gone.map((letter) => ({
        ...messageFields(letter),
        _id: letter["_id"],
        status: "dead",
        next_retry_at: new Date(0),
      })),
    );
  }
  const back = [
    {
      $set: {
        status: "new",
        waits: "parked",
        relay: { $literal: relay },
        earlier_attempts: { $convert: { input: "$attempts", to: "int", onError: 0, onNull: 0 } },
        attempts: { $convert: { input: "$attempts", to: "int", onError: 0, onNull: 0 } },
        next_retry_at: "$$NOW",
        lease_token: null,
      },
    },
  ];
  const died = { status: "dead", waits: { $exists: false }, ...inTime(fence) };
  // Each with its own contents: where there are no transactions, an edit may have come as far as the letter only.
  for (const letter of letters.filter(({ edited }) => edited === true)) {
    const update = [...contentsStep(letter), ...back];
    await tables.outbox.updateMany({ _id: letter["_id"], ...died }, update, { maxTimeMS: fence.maxTimeMS });
  }
  const plain = letters.filter(({ edited }) => edited !== true).map(({ _id }) => _id);
  if (plain.length > 0)
    await tables.outbox.updateMany({ _id: { $in: plain }, ...died }, back, { maxTimeMS: fence.maxTimeMS });
  const returned = await tables.outbox.find({ _id: { $in: ids }, status: { $ne: "dead" } }, { projection: { _id: 1 } });
  return returned.map(({ _id }) => _id);
}
