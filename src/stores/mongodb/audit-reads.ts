import type { ReceiptInfo, ReceiptQuery, SentMessage, SentPage, SentQuery } from "../../core/contracts.ts";
import { uuidv7Time } from "../../core/uuid.ts";
import { pagePlace } from "../shared/checked-admin.ts";
import { furthest, NO_RECEIPT } from "../shared/furthest-receipt.ts";
import type { Document } from "./mongodb-client.ts";
import { numberOr, presentable } from "./mongodb-document.ts";
import { noSuchRelay } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";

/** How many documents a page looks at. */
const PAGE = 1000;
/** Clocks of writers and receivers may differ by this much. */
const CLOCKS_MS = 3_600_000;

const FIELDS = {
  message_id: 1,
  stream: 1,
  event_type: 1,
  key: 1,
  position: 1,
  created_at: 1,
  published_at: 1,
  relay: 1,
  skipped: 1,
};

/**
 * What was published from `since` on, by the time of publishing: the index over documents that are done is the only one
 * that grows with time. So what was enqueued earlier and published since is there as well. A page ends between two
 * times, so that documents of one settle are in one page.
 */
export async function readSent({ outbox, relays }: Tables, query: SentQuery): Promise<SentPage> {
  const [relay] = await relays.aggregate([{ $match: { _id: query.relay } }, { $set: { at: "$$NOW" } }]);
  if (relay === undefined) throw noSuchRelay(query.relay);
  const now = (relay["at"] as Date).getTime();
  const { limit = PAGE } = query;
  const [from, last] = query.after === undefined ? [query.since.getTime(), now] : placeOf(query.after);
  const ttl = (await outbox.raw.indexes()).find(({ name }) => name === "txbox_done")?.["expireAfterSeconds"];
  const keptSince = new Date(now - numberOr(ttl, 0) * 1000);
  const done = (published_at: Document): Promise<Document[]> =>
    outbox.find(
      { status: "done", published_at },
      { sort: { published_at: 1 }, limit, projection: FIELDS, hint: "txbox_done" },
    );
  const documents = await done({ $gte: new Date(from), $lte: new Date(last) });
  let next: string | null = null;
  if (documents.length === limit) {
    const end = documents.at(-1)!["published_at"] as Date;
    const known = new Set(documents.map(({ _id }) => _id));
    const sameTime = { status: "done", published_at: end };
    const rest = await outbox.find(sameTime, { projection: FIELDS, hint: "txbox_done" });
    documents.push(...rest.filter(({ _id }) => !known.has(_id)));
    next = `${end.getTime() + 1}/${last}`;
  }
  // What lay before the start of the relay counts as done, and was never published.
  const ofRelay = documents.filter(({ relay: by, skipped }) => by === query.relay && skipped !== true);
  const messages = ofRelay.map(sentMessage);
  const wanted = messages.filter(
    ({ stream, type, createdAt }) =>
      createdAt < query.until &&
      ((relay["streams"] as string[] | null | undefined)?.includes(stream) ?? !stream.startsWith("inbox.")) &&
      query.streams?.includes(stream) !== false &&
      query.types?.includes(type) !== false,
  );
  // Positions rise within a key; documents of one time come in any order.
  return { messages: wanted.sort((a, b) => (a.position < b.position ? -1 : 1)), next, keptSince };
}

function placeOf(text: string): [number, number] {
  const [from, last] = pagePlace(text, /^(\d{1,15})\/(\d{1,15})$/);
  return [Number(from), Number(last)];
}

function sentMessage(row: Document): SentMessage {
  const document = presentable(row);
  return {
    id: String(document["message_id"] ?? document["_id"]),
    position: BigInt(document["position"] as number),
    stream: document["stream"] as string,
    type: document["event_type"] as string,
    key: document["key"] as string | null,
    createdAt: document["created_at"] as Date,
  };
}

export async function readReceipts(
  { inbox }: Tables,
  { consumer, messages }: ReceiptQuery,
  retentionMs: number,
): Promise<ReceiptInfo[]> {
  const perSource = (await inbox.findOne({ _id: { consumer, message_id: "" } })) !== null;
  const holders = perSource ? await holdersOf(inbox, consumer) : [consumer];
  const found = new Map<string, ReceiptInfo>();
  for (const holder of holders) {
    const ids = messages.map(({ id }) => ({ consumer: holder, message_id: id }));
    for (const row of await inbox.find({ _id: { $in: ids } })) {
      const { message_id: id } = row["_id"] as { message_id: string };
      found.set(id, furthest(found.get(id), receiptInfo(row)));
    }
  }
  const oldest = Date.now() - retentionMs + CLOCKS_MS;
  return messages.map(({ id, createdAt }) => {
    const receipt = found.get(id);
    if (receipt !== undefined) return receipt;
    const expired = Math.min(createdAt.getTime(), uuidv7Time(id) ?? Number.POSITIVE_INFINITY) < oldest;
    return { ...NO_RECEIPT, status: expired ? "expired" : "none" };
  });
}

/** From one name to the next by the index: a consumer has as many as it has sources. */
async function holdersOf(inbox: Tables["inbox"], consumer: string): Promise<string[]> {
  const holders: string[] = [];
  const prefix = `${consumer}@`;
  for (let after = prefix; ;) {
    // An object comes behind every text, so this is past all ids of the name before.
    const $gt = holders.length === 0 ? { consumer: after, message_id: "" } : { consumer: after, message_id: {} };
    const next = await inbox.findOne({ _id: { $gt } }, { sort: { _id: 1 }, projection: { _id: 1 } });
    const name = (next?.["_id"] as { consumer?: unknown } | undefined)?.consumer;
    if (typeof name !== "string" || !name.startsWith(prefix)) return holders;
    holders.push((after = name));
  }
}

export function receiptInfo(row: Document): ReceiptInfo {
  const date = (value: unknown): Date | null => (value instanceof Date ? value : null);
  return {
    status: row["status"] as ReceiptInfo["status"],
    receivedAt: date(row["received_at"]),
    processedAt: date(row["processed_at"]),
    attempts: numberOr(row["attempts"], 0),
    lastError: (row["last_error"] as string | null | undefined) ?? null,
  };
}
