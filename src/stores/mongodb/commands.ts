import { messageFields } from "./dead-letters.ts";
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

/** Carries out what operators asked for, as the owner of the lanes, with nothing in hand. */
export async function carryOutCommands(tables: Tables, options: CommandOptions, fence: Fence): Promise<void> {
  const letters = await tables.dead.find(waitingFor(options), { sort: { position: 1 }, limit: BATCH });
  const requeued = letters.filter(({ command }) => command === "requeue");
  if (requeued.length > 0) await requeue(tables, requeued, options.relay, fence);
  const done = (those: readonly Document[], command: string, state: string) =>
    those.length === 0
      ? Promise.resolve()
      : tables.dead.updateMany(
          { _id: { $in: those.map(({ _id }) => _id) }, command, state: "dead" },
          { $set: { state, command: null, blocks: false }, $currentDate: { changed_at: true } },
        );
  await done(requeued, "requeue", "requeued");
  await done(
    letters.filter(({ command }) => command === "discard"),
    "discard",
    "discarded",
  );
}

/** Back among the parked ones of their key, at their old positions: before everything that came later. */
async function requeue(tables: Tables, letters: readonly Document[], relay: string, fence: Fence): Promise<void> {
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
  await tables.outbox.updateMany({ _id: { $in: ids }, status: "dead", $expr: { $lt: ["$$NOW", fence.until] } }, [
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
  ]);
}
