import type { Clock, JoinOptions } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { requireSameStreams } from "../../lanes/relay-errors.ts";
import { streamsFilter } from "./claims.ts";
import type { Tables } from "./mongodb-names.ts";
import type { MongoOwnership, RelayView } from "./mongodb-ownership.ts";

const SKIP_BATCH = 1000;
const WAIT_MS = 50;

/** Finds the relay, or makes it; several processes may do so at once. */
export async function findOrCreateRelay(
  tables: Tables,
  ownership: MongoOwnership,
  options: JoinOptions,
  clock: Clock,
): Promise<RelayView> {
  for (;;) {
    const view = await ownership.look();
    if (view === undefined) {
      await requireOwnStreams(tables, options);
      if (await ownership.create(options.owner, options.streams)) await prepare(tables, ownership, options);
    } else if (view.creating === undefined) {
      requireSameStreams(options, view.streams);
      return view;
    } else if ((await ownership.inheritCreation(options.owner)) !== undefined) {
      await prepare(tables, ownership, options);
    } else {
      await clock.sleep(WAIT_MS);
    }
  }
}

/** A relay that starts with what comes leaves what is there; what commits later comes, whenever it was written. */
async function prepare(tables: Tables, ownership: MongoOwnership, options: JoinOptions): Promise<void> {
  const { owner, streams, start } = options;
  if (start === "earliest") return ownership.finishCreation(owner);
  for (;;) {
    const creating = (await ownership.extendCreation(owner))?.creating;
    if (creating === undefined) return;
    const filter = { waits: "ready", ...streamsFilter(streams ?? null) };
    const ready = await tables.outbox.find(filter, { projection: { _id: 1 }, limit: SKIP_BATCH });
    if (ready.length === 0) break;
    // A process that stops here for a while must not leave out what came after others went on.
    const inTime = { $expr: { $lt: ["$$NOW", creating.until] } };
    await tables.outbox.updateMany(
      { _id: { $in: ready.map(({ _id }) => _id) }, waits: "ready", ...inTime },
      { $set: { status: "done", skipped: true }, $unset: { waits: 1 }, $currentDate: { published_at: true } },
    );
  }
  await ownership.finishCreation(owner);
}

/** A document has one status, so its stream belongs to one relay. */
async function requireOwnStreams({ relays }: Tables, { relay, streams }: JoinOptions): Promise<void> {
  const others = await relays.find({}, { projection: { streams: 1 } });
  for (const { _id, streams: theirs } of others) {
    if (_id === relay) continue;
    const shared = sharedStream(streams ?? null, (theirs as string[] | null | undefined) ?? null);
    if (shared === undefined) continue;
    throw new TxboxError(
      "invalid_option",
      `Relay "${relay}" cannot have ${shared}: relay "${String(_id)}" has it, and on MongoDB a message belongs to one relay`,
      {
        field: "streams",
        fix: "Give each relay streams of its own, drop the other relay, or use a second outbox collection",
      },
    );
  }
}

function sharedStream(a: readonly string[] | null, b: readonly string[] | null): string | undefined {
  if (a === null && b === null) return "all streams";
  if (a === null) return b === null ? undefined : sharedStream(b, a);
  if (b === null) return quoted(a.find((stream) => !stream.startsWith("inbox.")));
  return quoted(a.find((stream) => b.includes(stream)));
}

function quoted(stream: string | undefined): string | undefined {
  return stream === undefined ? undefined : `stream "${stream}"`;
}
