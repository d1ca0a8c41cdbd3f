import type {
  Admin,
  DeadChoice,
  DeadFilter,
  DeadLetter,
  DeadPlace,
  DeadQuery,
  MessageInfo,
  MessageQuery,
} from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { listBlocked } from "./blocked-keys.ts";
import { readSamples } from "./mongodb-history.ts";
import { checkedAdmin, DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { readReceipts, readSent } from "./audit-reads.ts";
import { readConsumers, readReceiptsOf } from "./consumers.ts";
import type { Document } from "./mongodb-client.ts";
import { errorsOf, fieldsOf, messageInfo } from "./message-info.ts";
import { documentId, numberOr } from "./mongodb-document.ts";
import { noSuchRelay } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { relayFigures } from "./relay-figures.ts";
import { search } from "./search.ts";
import { storeFigures } from "./store-figures.ts";
import { readWaiting } from "./waiting.ts";

/** How many letters one part of a command marks. */
const PART = 1000;

/** Read model and admin commands over the collections. */
export function createAdmin({ tables, receiptRetentionMs }: { tables: Tables; receiptRetentionMs: number }): Admin {
  return checkedAdmin({
    find: (query) => find(tables, query),
    search: (query) => search(tables, query),
    waiting: (query) => readWaiting(tables, query),
    relays: () => relayFigures(tables),
    figures: () => storeFigures(tables),
    samples: (query) => readSamples(tables, query),
    blocked: (query) => listBlocked(tables, query),
    pause: (relay) => setPaused(tables, relay, true),
    resume: (relay) => setPaused(tables, relay, false),
    rewind: (relay) => refuseRewind(tables, relay),
    rewindPreview: (relay) => refuseRewind(tables, relay),
    drop: (relay) => drop(tables, relay),
    dead: (query) => dead(tables, query),
    requeue: (choice, onProgress) => command(tables, "requeue", choice, onProgress),
    discard: (choice, onProgress) => command(tables, "discard", choice, onProgress),
    sent: (query) => readSent(tables, query),
    receipts: (query) => readReceipts(tables, query, receiptRetentionMs),
    receiptsOf: (messages) => readReceiptsOf(tables, messages),
    consumers: () => readConsumers(tables),
  });
}

async function refuseRewind({ relays }: Tables, relay: string): Promise<never> {
  if ((await relays.findOne({ _id: relay })) === null) throw noSuchRelay(relay);
  throw new TxboxError("invalid_option", "A relay on MongoDB cannot be rewound: each document has one state", {
    field: "relay",
    fix: "Requeue dead letters, or enqueue what is missing again with a reconciler",
  });
}

async function find({ outbox }: Tables, query: MessageQuery): Promise<MessageInfo[]> {
  const filter = given({
    ...byId(query.id),
    ...byIds(query.ids),
    stream: query.stream,
    key: query.key,
    aggregate_type: query.aggregateType,
    aggregate_id: query.aggregateId,
    correlation_id: query.correlationId,
    relay: query.relay,
  });
  const rows = await outbox.aggregate([
    { $match: filter },
    { $sort: { position: 1 } },
    { $limit: query.limit ?? DEFAULT_PAGE },
    { $set: { now: "$$NOW" } },
  ]);
  return rows.map(messageInfo);
}

function deadFilter(filter: DeadFilter, state: DeadLetter["state"]): Document {
  return given({
    state,
    relay: filter.relay,
    ...byId(filter.id),
    position: filter.position === undefined ? undefined : Number(filter.position),
    stream: filter.stream,
    event_type: filter.type,
    key: filter.key,
  });
}

/** An index has them in this order. Positions rise within a key only, so several letters may have the same one. */
const IN_ORDER = { position: 1, _id: 1 };

interface Place {
  position: number;
  _id: unknown;
}

/** What comes after a place. The first condition says nothing new, but an index understands it. */
function behind(place: Place | undefined): Document {
  if (place === undefined) return {};
  const { position, _id } = place;
  const later = { $or: [{ position: { $gt: position } }, { position, _id: { $gt: _id } }] };
  return { $and: [{ position: { $gte: position } }, later] };
}

function placeOf({ position, stream, id }: DeadPlace): Place {
  return { position: Number(position), _id: documentId(stream, id) };
}

async function dead({ dead: letters }: Tables, query: DeadQuery): Promise<DeadLetter[]> {
  const after = query.after === undefined ? undefined : placeOf(query.after);
  const filter = { ...deadFilter(query, query.state ?? "dead"), ...behind(after) };
  const rows = await letters.find(filter, { sort: IN_ORDER, limit: query.limit ?? DEFAULT_PAGE });
  return rows.map((row) => ({
    ...fieldsOf(row),
    position: BigInt(row["position"] as number),
    relay: row["relay"] as string,
    state: row["state"] as DeadLetter["state"],
    command: row["command"] as DeadLetter["command"],
    attempts: numberOr(row["attempts"], 0),
    lastError: row["last_error"] as string,
    errors: errorsOf(row),
    diedAt: row["died_at"] as Date,
  }));
}

/** Marks dead letters for the owner of their lanes, part by part in order. Those carried out meanwhile are left alone. */
async function command(
  { dead: letters }: Tables,
  what: "requeue" | "discard",
  choice: DeadChoice,
  onProgress?: (count: number) => void,
): Promise<number> {
  const filter = deadFilter(choice, "dead");
  const change = { $set: { command: what }, $currentDate: { changed_at: true } };
  const most = choice.limit ?? Number.POSITIVE_INFINITY;
  let count = 0;
  let after: Place | undefined;
  while (count < most) {
    const part = Math.min(PART, most - count);
    const options = { sort: IN_ORDER, limit: part, projection: { position: 1 } };
    const found = await letters.find({ ...filter, ...behind(after) }, options);
    if (found.length === 0) break;
    const ids = found.map(({ _id }) => _id);
    count += (await letters.updateMany({ _id: { $in: ids }, state: "dead" }, change)).matchedCount;
    onProgress?.(count);
    if (found.length < part) break;
    after = found.at(-1) as unknown as Place;
  }
  return count;
}

async function setPaused({ relays }: Tables, relay: string, paused: boolean): Promise<void> {
  const { matchedCount } = await relays.updateOne({ _id: relay }, { $set: { paused } });
  if (matchedCount === 0) throw noSuchRelay(relay);
}

/** Its open messages are ready for whichever relay takes their streams next; its dead letters stay. */
async function drop({ relays, outbox }: Tables, relay: string): Promise<void> {
  const { deletedCount } = await relays.raw.deleteOne({ _id: relay });
  if (deletedCount === 0) throw noSuchRelay(relay);
  const ready = {
    $set: { status: "new", waits: "ready", lease_owner: null, lease_until: null, lease_token: null },
    $unset: { relay: 1, alone: 1, crashes: 1 },
  };
  await outbox.updateMany({ waits: "parked", relay }, ready);
  await outbox.updateMany({ status: "processing", relay }, ready);
  // No change stream tells of documents that were made ready: the relay that has their streams by now looks for them.
  // What free lanes were left with no longer holds; what owners know is void by the number.
  await relays.updateMany({}, { $inc: { rescans: 1 }, $set: { "lanes.$[].resume": null } });
}

function byId(id: string | undefined): Document {
  return id === undefined ? {} : { $or: [{ _id: id }, { message_id: id }] };
}

/** Beside an id, both must hold. */
function byIds(ids: readonly string[] | undefined): Document {
  return ids === undefined ? {} : { $and: [{ $or: [{ _id: { $in: ids } }, { message_id: { $in: ids } }] }] };
}

function given(conditions: Document): Document {
  return Object.fromEntries(Object.entries(conditions).filter(([, value]) => value !== undefined));
}
