import type { Admin, Author, MessageInfo, MessageQuery } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { listBlocked } from "./blocked-keys.ts";
import { readSamples } from "./mongodb-history.ts";
import { stopNote } from "../shared/change-details.ts";
import { checkedAdmin, DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { readReceipts, readSent } from "./audit-reads.ts";
import { Changes, listChanges, type ChangesOptions } from "./changes.ts";
import { readConsumers, readReceiptsOf } from "./consumers.ts";
import { commandDead, editLetter, listDead, originalOf } from "./dead-admin.ts";
import { deadGroups } from "./dead-groups.ts";
import { listed, messageInfo, withoutContents } from "./message-info.ts";
import type { Document } from "./mongodb-client.ts";
import { noSuchRelay } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { relayFigures } from "./relay-figures.ts";
import { search } from "./search.ts";
import { storeFigures } from "./store-figures.ts";
import { readWaiting } from "./waiting.ts";

export interface AdminOptions extends ChangesOptions {
  receiptRetentionMs: number;
}

/** Read model and admin commands over the collections. */
export function createAdmin(options: AdminOptions): Admin {
  return checkedAdmin(adminBy(undefined, options));
}

/** An admin whose changes are noted under a name. */
function adminBy(author: Author | undefined, options: AdminOptions): Admin {
  const { tables, receiptRetentionMs } = options;
  const changes = new Changes(options, author);
  return {
    by: (other) => adminBy(other, options),
    changes: (query) => listChanges(tables, query),
    find: (query) => find(tables, query),
    search: (query) => search(tables, query),
    waiting: (query) => readWaiting(tables, query),
    relays: () => relayFigures(tables),
    figures: () => storeFigures(tables),
    samples: (query) => readSamples(tables, query),
    blocked: (query) => listBlocked(tables, query),
    pause: (relay) => setPaused(tables, changes, relay, true),
    resume: (relay) => setPaused(tables, changes, relay, false),
    rewind: (relay) => refuseRewind(tables, relay),
    rewindPreview: (relay) => refuseRewind(tables, relay),
    drop: (relay) => drop(tables, changes, relay),
    dead: (query) => listDead(tables, query),
    deadGroups: (query) => deadGroups(tables, query),
    requeue: (choice, onProgress) => commandDead(tables, changes, "requeue", choice, onProgress),
    discard: (choice, onProgress) => commandDead(tables, changes, "discard", choice, onProgress),
    edit: (letter, change) => editLetter(tables, changes, letter, change),
    original: (letter) => originalOf(tables, letter),
    noteStop: async (redrive) =>
      void (await changes.make(stopNote(redrive), () => Promise.resolve({ answer: undefined, count: null }))),
    sent: (query) => readSent(tables, query),
    receipts: (query) => readReceipts(tables, query, receiptRetentionMs),
    receiptsOf: (messages) => readReceiptsOf(tables, messages),
    consumers: () => readConsumers(tables),
  };
}

async function refuseRewind(tables: Tables, relay: string): Promise<never> {
  await requireRelay(tables, relay);
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
    ...withoutContents(query.contents),
  ]);
  return rows.map((row) => messageInfo(query.contents === false ? listed(row) : row));
}

async function requireRelay({ relays }: Tables, relay: string): Promise<void> {
  if ((await relays.findOne({ _id: relay }, { projection: { _id: 1 } })) === null) throw noSuchRelay(relay);
}

async function setPaused(tables: Tables, changes: Changes, relay: string, paused: boolean): Promise<void> {
  await requireRelay(tables, relay);
  await changes.make({ action: paused ? "pause" : "resume", relay, details: {} }, async (session) => {
    const { matchedCount } = await tables.relays.updateOne({ _id: relay }, { $set: { paused } }, { ...session });
    if (matchedCount === 0) throw noSuchRelay(relay);
    return { answer: undefined, count: null };
  });
}

/** Its open messages are ready for the relay that takes their streams next; its dead letters stay. */
async function drop(tables: Tables, changes: Changes, relay: string): Promise<void> {
  const { relays, outbox } = tables;
  await requireRelay(tables, relay);
  await changes.make({ action: "drop", relay, details: {} }, async (session) => {
    const { deletedCount } = await relays.raw.deleteOne({ _id: relay }, { ...session });
    if (deletedCount === 0) throw noSuchRelay(relay);
    return { answer: undefined, count: null };
  });
  const ready = {
    $set: { status: "new", waits: "ready", lease_owner: null, lease_until: null, lease_token: null },
    $unset: { relay: 1, alone: 1, crashes: 1 },
  };
  await outbox.updateMany({ waits: "parked", relay }, ready);
  await outbox.updateMany({ status: "processing", relay }, ready);
  // No change stream tells of documents that were made ready: the relay that has their streams by now looks for them.
  // The new number makes the stream times that owners know void; those that free lanes keep are removed.
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
