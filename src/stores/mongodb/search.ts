import type { MessageInfo, MessagePage, MessageSearch, MessageStatus } from "../../core/contracts.ts";
import { type Budget, type Chunk, searchPage, type SearchPart } from "../shared/search-page.ts";
import { streamsFilter } from "./claims.ts";
import { letterInfo, listed, messageInfo, withoutContents } from "./message-info.ts";
import type { Document } from "./mongodb-client.ts";
import { numberOr } from "./mongodb-document.ts";
import type { Tables } from "./mongodb-names.ts";
import { viewOf } from "./mongodb-ownership.ts";
import { PER_MS } from "./mongodb-sequence.ts";
import type { Table } from "./table.ts";

/** A page looks at so many documents of the outbox. */
const LOOKED_AT = 5000;
/** Open work of one kind is read by its own index while there is no more of it. */
const LISTED = 5000;
/** Positions run ahead of the time by less than this. */
const AHEAD_MS = 1000;
/** Messages of a key that share a position are of different streams: mostly there are few of them. */
const TIES = 50;
/** No id comes behind it. */
const LAST_ID = "\u{10FFFF}";

const NEWEST_FIRST = { position: -1, _id: -1 };

/** A page of messages in the order of their positions, which are near the times at which they were enqueued. */
export async function search(tables: Tables, query: MessageSearch): Promise<MessagePage> {
  const isOfDead = query.status === "dead" && !isIndexed(query);
  const part = isOfDead
    ? deadPart(tables, query)
    : outboxPart(tables, query, { ...conditionsOf(query), ...(await ofRelay(tables, query.relay)) });
  return searchPage(query, [part], LOOKED_AT);
}

/** What a relay has claimed, and what it will claim: until the claim a document belongs to no relay. */
async function ofRelay({ relays }: Tables, relay: string | undefined): Promise<Document> {
  if (relay === undefined) return {};
  const [known] = await relays.aggregate([{ $match: { _id: relay } }, { $set: { at: "$$NOW" } }]);
  if (known === undefined) return { relay };
  const unclaimed = { relay: null, waits: "ready", ...streamsFilter(viewOf(known).streams) };
  return { $or: [{ relay }, unclaimed] };
}

interface Place {
  readonly position: number;
  readonly id: string;
}

function placeOf(ref: string): Place {
  const slash = ref.indexOf("/");
  return { position: Number(ref.slice(0, slash)), id: ref.slice(slash + 1) };
}

const refOf = ({ position, _id }: Document): string => `${numberOr(position, 0)}/${String(_id)}`;

/** What lies at a position or below it comes behind this ref. */
const from = (position: number): string => `${Math.max(0, position)}/${LAST_ID}`;

/** What comes behind a place. The first condition says nothing new, but an index understands it. */
function behind(after: string | undefined): Document {
  if (after === undefined) return {};
  const { position, id } = placeOf(after);
  return {
    $and: [
      { position: { $lte: position } },
      { $or: [{ position: { $lt: position } }, { position, _id: { $lt: id } }] },
    ],
  };
}

/** Documents are read together with what tells whether they are wanted. */
class Documents {
  readonly #infos = new Map<string, MessageInfo>();
  readonly #refs = new Map<MessageInfo, string>();
  readonly #info: (document: Document) => MessageInfo;
  readonly #lastSteps: Document[];

  constructor(info: (document: Document) => MessageInfo, { contents = true }: MessageSearch) {
    this.#info = contents ? info : (document) => info(listed(document));
    this.#lastSteps = [{ $set: { now: "$$NOW" } }, ...withoutContents(contents)];
  }

  /** With the server's time, by which a lease is over or not. */
  read(table: Table, steps: Document[], hint: string): Promise<Document[]> {
    return table.aggregate([...steps, ...this.#lastSteps], { hint });
  }

  part(name: string, next: SearchPart["next"]): SearchPart {
    return {
      name,
      newestFirst: true,
      next,
      isRef: (text) => /^\d{1,16}\/[^\0]+$/.test(text),
      refOf: (message) => this.#refs.get(message)!,
      read: (refs) => Promise.resolve(refs.map((ref) => this.#infos.get(ref)!)),
    };
  }

  /** `last`: the last document that was looked at; undefined: all of them were. */
  chunk(found: readonly Document[], wanted: number, last: Document | undefined, seen: number): Chunk {
    const isCut = found.length >= wanted;
    const end = isCut ? found.at(-1) : last;
    return this.chunkTo(found, end === undefined ? undefined : refOf(end), end, seen);
  }

  /** The same with the ref behind which the next page begins; undefined: there is none. */
  chunkTo(found: readonly Document[], after: string | undefined, last: Document | undefined, seen: number): Chunk {
    for (const document of found) {
      const [ref, info] = [refOf(document), this.#info(document)];
      this.#infos.set(ref, info);
      this.#refs.set(info, ref);
    }
    const at = last?.["created_at"];
    const lastAt = at instanceof Date ? at : undefined;
    return { refs: found.map(refOf), after: after ?? "0/", seen, lastAt, isLast: after === undefined };
  }
}

/** An index in the order of positions is walked; of another one all that matches is sorted. */
interface Source {
  readonly table: Table;
  readonly index: string;
  readonly filter: Document;
  readonly sort?: Document | undefined;
}

const newest = (limit: number): Document[] => [{ $sort: NEWEST_FIRST }, { $limit: limit }];

function outboxPart({ outbox }: Tables, query: MessageSearch, conditions: Document): SearchPart {
  const documents = new Documents(messageInfo, query);
  let index: string | undefined;
  return documents.part("log", async (after, budget) => {
    if (query.id !== undefined) {
      const found = await byId(documents, outbox, query.id, { $and: [conditions, range(query), behind(after)] });
      return documents.chunk(found, Number.POSITIVE_INFINITY, undefined, found.length);
    }
    index ??= await indexFor(outbox, query);
    const filter = { $and: [behind(after), range(query)] };
    if (index === "txbox_newest") return walk(documents, { table: outbox, index, filter }, conditions, budget);
    const about = ABOUT[index];
    if (about !== undefined) {
      const { [about.field]: value, ...others } = conditions;
      const ofValue = { $and: [{ [about.field]: value }, filter] };
      return walk(documents, { table: outbox, index, filter: ofValue, sort: about.sort }, others, budget);
    }
    const found = await documents.read(
      outbox,
      [{ $match: { $and: [filter, conditions] } }, ...newest(budget.part)],
      index,
    );
    return documents.chunk(found, budget.part, undefined, found.length);
  });
}

/** Looks at so many documents and no more, for those that match. */
async function walk(
  documents: Documents,
  { table, index, filter, sort = NEWEST_FIRST }: Source,
  conditions: Document,
  { sight, part }: Budget,
): Promise<Chunk> {
  // Without a condition no more are read than are wanted, and those that share a position with the last of them.
  const looked = Object.keys(conditions).length === 0 ? Math.min(Math.max(sight, TIES), part + TIES) : sight;
  const matching = [{ $match: filter }, { $sort: sort }, { $limit: looked }, { $match: conditions }];
  const found = await documents.read(table, [...matching, { $limit: part + TIES }], index);
  const fields = { _id: 1, position: 1, created_at: 1 };
  const options = { sort, limit: 1, projection: fields, hint: index };
  const lastLooked = async () => (await table.find(filter, { ...options, skip: looked - 1 }))[0];
  if (sort === NEWEST_FIRST) {
    const wanted = found.slice(0, part);
    if (wanted.length >= part) return documents.chunk(wanted, part, undefined, wanted.length);
    return documents.chunk(wanted, part, await lastLooked(), looked);
  }
  const edge = found.length >= part + TIES ? found.at(-1) : await lastLooked();
  if (edge === undefined) return documents.chunk(found.toSorted(order).slice(0, part), part, undefined, found.length);
  // This index does not order what shares a position: of those at the edge some may not have been seen.
  const position = numberOr(edge["position"], 0);
  const whole = found.filter((one) => numberOr(one["position"], 0) > position).toSorted(order);
  if (whole.length >= part) return documents.chunk(whole.slice(0, part), part, undefined, found.length);
  const [top] = await table.find(filter, options);
  if (numberOr(top?.["position"], 0) !== position) return documents.chunkTo(whole, from(position), edge, looked);
  const ties = [{ $match: { $and: [filter, { position }, conditions] } }, { $sort: { _id: -1 } }, { $limit: part }];
  const tied = await documents.read(table, ties, index);
  if (tied.length >= part) return documents.chunk(tied, part, undefined, tied.length);
  return documents.chunkTo(tied, from(position - 1), edge, looked);
}

/** One that was stored by an inbox has another `_id`: under an id there are few. */
async function byId(documents: Documents, outbox: Table, id: string, wanted: Document): Promise<Document[]> {
  const own = await documents.read(outbox, [{ $match: { $and: [{ _id: id }, wanted] } }], "_id_");
  const stored = await documents.read(outbox, [{ $match: { $and: [{ message_id: id }, wanted] } }], "txbox_message_id");
  return [...own, ...stored].toSorted(order);
}

function order(a: Document, b: Document): number {
  const difference = numberOr(b["position"], 0) - numberOr(a["position"], 0);
  return difference !== 0 ? difference : String(a["_id"]) < String(b["_id"]) ? 1 : -1;
}

/** What an index is about, and the order in which it has its documents. */
const ABOUT: Readonly<Record<string, { readonly field: string; readonly sort: Document }>> = {
  txbox_correlation: { field: "correlation_id", sort: NEWEST_FIRST },
  txbox_aggregate: { field: "aggregate_id", sort: NEWEST_FIRST },
  txbox_key: { field: "key", sort: { position: -1 } },
};

const isIndexed = ({ id, key, aggregateId, correlationId }: MessageSearch): boolean =>
  id !== undefined || key !== undefined || aggregateId !== undefined || correlationId !== undefined;

/** Kinds of open work, with what their index needs to know. */
const OPEN: Partial<Record<MessageStatus, { filter: Document; index: string }>> = {
  scheduled: { filter: { waits: "later" }, index: "txbox_later" },
  retrying: { filter: { waits: "parked" }, index: "txbox_parked" },
  processing: { filter: { status: "processing" }, index: "txbox_processing" },
};

async function indexFor(outbox: Table, { correlationId, aggregateId, key, status }: MessageSearch): Promise<string> {
  if (correlationId !== undefined) return "txbox_correlation";
  if (aggregateId !== undefined) return "txbox_aggregate";
  if (key !== undefined) return "txbox_key";
  const open = status === undefined ? undefined : OPEN[status];
  if (open === undefined) return "txbox_newest";
  const count = await outbox.count(open.filter, { limit: LISTED + 1, hint: open.index });
  return count > LISTED ? "txbox_newest" : open.index;
}

/** Dead letters in the order of their positions, of both states in which a letter is dead. */
function deadPart({ dead }: Tables, query: MessageSearch): SearchPart {
  const documents = new Documents(letterInfo, query);
  const { relay } = query;
  const index = relay === undefined ? "txbox_letters" : "txbox_letters_of_relay";
  const letters = { state: { $in: ["dead", "discarded"] }, ...(relay === undefined ? {} : { relay }) };
  return documents.part("dead", (after, budget) => {
    const filter = { $and: [letters, range(query), behind(after)] };
    return walk(documents, { table: dead, index, filter }, conditionsOf(query, false), budget);
  });
}

/**
 * Positions of what was enqueued within the time: never below its own time, and little above it. What was scheduled has
 * the position of when it was due.
 */
function range({ since, until }: MessageSearch): Document {
  if (since === undefined && until === undefined) return {};
  return {
    position: {
      ...(since === undefined ? {} : { $gte: Math.max(0, since.getTime() * PER_MS) }),
      ...(until === undefined ? {} : { $lt: Math.max(0, (until.getTime() + AHEAD_MS) * PER_MS) }),
    },
  };
}

/** What the document itself tells. A dead letter has no status but its state. */
function conditionsOf(query: MessageSearch, withStatus = true): Document {
  const fields = {
    stream: query.stream,
    event_type: query.type,
    key: query.key,
    aggregate_type: query.aggregateType,
    aggregate_id: query.aggregateId,
    correlation_id: query.correlationId,
    created_at: query.until === undefined ? undefined : { $lt: query.until },
  };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  return { ...given, ...(withStatus && query.status !== undefined ? STATUS[query.status] : {}) };
}

const HELD = { $and: [{ $eq: ["$status", "processing"] }, { $gt: ["$lease_until", "$$NOW"] }] };

/** As `messageInfo` tells them. */
const STATUS: Readonly<Record<MessageStatus, Document>> = {
  published: { status: "done" },
  dead: { status: "dead" },
  retrying: { status: "failed", waits: "parked" },
  scheduled: { waits: "later" },
  processing: { status: "processing", $expr: HELD },
  pending: { status: { $nin: ["done", "dead", "failed"] }, waits: { $ne: "later" }, $expr: { $not: [HELD] } },
};
