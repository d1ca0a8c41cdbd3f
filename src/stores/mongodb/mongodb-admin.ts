import type { Admin, Author, MessageInfo, MessageQuery, MessageStatus } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { listBlocked } from "./blocked-keys.ts";
import { readSamples } from "./mongodb-history.ts";
import { checkedAdmin, DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { readReceipts, readSent } from "./audit-reads.ts";
import { Changes, listChanges, type ChangesOptions } from "./changes.ts";
import { commandDead, editLetter, listDead, originalOf } from "./dead-admin.ts";
import { deadGroups } from "./dead-groups.ts";
import type { Document } from "./mongodb-client.ts";
import { fieldsOf, numberOr, presentable } from "./mongodb-document.ts";
import { noSuchRelay } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { relayFigures } from "./relay-figures.ts";
import { storeFigures } from "./store-figures.ts";

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
    relays: () => relayFigures(tables),
    figures: () => storeFigures(tables),
    samples: (query) => readSamples(tables, query),
    blocked: (query) => listBlocked(tables, query),
    pause: (relay) => setPaused(tables, changes, relay, true),
    resume: (relay) => setPaused(tables, changes, relay, false),
    async rewind(relay) {
      await requireRelay(tables, relay);
      throw new TxboxError("invalid_option", "A relay on MongoDB cannot be rewound: each document has one state", {
        field: "relay",
        fix: "Requeue dead letters, or enqueue what is missing again with a reconciler",
      });
    },
    drop: (relay) => drop(tables, changes, relay),
    dead: (query) => listDead(tables, query),
    deadGroups: (query) => deadGroups(tables, query),
    requeue: (choice, onProgress) => commandDead(tables, changes, "requeue", choice, onProgress),
    discard: (choice, onProgress) => commandDead(tables, changes, "discard", choice, onProgress),
    edit: (letter, change) => editLetter(tables, changes, letter, change),
    original: (letter) => originalOf(tables, letter),
    sent: (query) => readSent(tables, query),
    receipts: (query) => readReceipts(tables, query, receiptRetentionMs),
  };
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

function messageInfo(row: Document): MessageInfo {
  const document = presentable(row);
  const status = statusOf(document);
  return {
    ...fieldsOf(document),
    position: status === "scheduled" ? null : BigInt(document["position"] as number),
    relay: (document["relay"] as string | undefined) ?? null,
    status,
    attempts: numberOr(document["attempts"], 0),
    lastError: (document["last_error"] as string | null | undefined) ?? null,
    publishedAt: (document["published_at"] as Date | undefined) ?? null,
    deliverAt: status === "scheduled" ? (document["next_retry_at"] as Date) : null,
  };
}

function statusOf({ status, waits, lease_until, now }: Document): MessageStatus {
  if (status === "done") return "published";
  if (status === "dead") return "dead";
  if (status === "failed") return "retrying";
  if (waits === "later") return "scheduled";
  return status === "processing" && (lease_until as Date) > (now as Date) ? "processing" : "pending";
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

/** Its open messages are ready for whichever relay takes their streams next; its dead letters stay. */
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
