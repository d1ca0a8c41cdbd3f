import type { BlockedKey, BlockedPlace, BlockedQuery } from "../../core/contracts.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import type { Document } from "./mongodb-client.ts";
import { numberOr, presentable } from "./mongodb-document.ts";
import type { Tables } from "./mongodb-names.ts";
import type { Table } from "./table.ts";

/** What waits behind one key is counted up to here. */
const COUNTED = 10_000;
/** A key with more messages than this is counted instead of read. */
const RUN = 20;
/** Two indexes have parked messages, and dead letters that hold their key, in this order. */
const ORDER = { relay: 1, lane: 1, stream: 1, key: 1, position: 1 };
const FIELDS = { ...ORDER, message_id: 1, attempts: 1, earlier_attempts: 1, last_error: 1, next_retry_at: 1 };

/** The first message of a key, and how many of the key there are. */
interface Front {
  readonly place: Place;
  readonly document: Document;
  count: number;
}

interface Place {
  readonly relay: string;
  readonly lane: number;
  readonly stream: string;
  readonly key: string | null;
  readonly position: number;
}

/**
 * A page of blocked keys by relay, lane, stream and key: keys with parked messages, and those that a dead letter holds. A
 * page costs what is on it. Messages without a key wait each on its own; those of one place are never torn apart, so that
 * a page may be a little longer than its limit.
 */
export async function listBlocked({ outbox, dead }: Tables, query: BlockedQuery): Promise<BlockedKey[]> {
  const limit = query.limit ?? DEFAULT_PAGE;
  const after = query.after === undefined ? undefined : afterOf(query.after);
  const wanted = {
    relay: query.relay ?? { $gt: "" },
    ...(query.stream === undefined ? {} : { stream: query.stream }),
    ...(query.key === undefined ? {} : { key: query.key }),
  };
  const parked = await fronts(outbox, { waits: "parked", ...wanted }, after, limit, {
    hint: "txbox_parked",
    projection: { ...FIELDS, status: 1, errors: { $slice: 1 } },
  });
  const holding = { blocks: true, state: "dead", ...wanted, key: query.key ?? { $gt: "" } };
  const held = await fronts(dead, holding, after, limit, {
    hint: "txbox_holding",
    projection: { ...FIELDS, died_at: 1 },
  });
  return merged(parked, held, limit);
}

/** The first messages of at most `limit` keys, in order. */
async function fronts(
  table: Table,
  filter: Document,
  after: Place | undefined,
  limit: number,
  options: Document,
): Promise<Front[]> {
  const found: Front[] = [];
  for (let from = after; ;) {
    let enough = false;
    await table.read({ $and: [filter, behind(from)] }, { sort: ORDER, batchSize: 1000, ...options }, (document) => {
      const place = placeOf(document);
      const last = found.at(-1);
      if (last !== undefined && place.key !== null && compare(last.place, place, false) === 0) {
        last.count++;
        return last.count > RUN;
      }
      enough = found.length >= limit && (last === undefined || compare(last.place, place, true) !== 0);
      if (!enough) found.push({ place, document, count: 1 });
      return enough;
    });
    const last = found.at(-1);
    if (enough || last === undefined || last.count <= RUN) return found;
    const { position: _, ...key } = last.place;
    last.count = await table.count({ ...filter, ...key }, { limit: COUNTED + 1, hint: options["hint"] });
    if (found.length >= limit) return found;
    from = last.place;
  }
}

/** Both are in order; a key that is in both is held by its dead letter. */
function merged(parked: readonly Front[], held: readonly Front[], limit: number): BlockedKey[] {
  const all: { front: Front; blocked: BlockedKey }[] = [];
  for (let [p, d] = [0, 0]; p < parked.length || d < held.length;) {
    const [waiting, letter] = [parked[p], held[d]];
    const order = waiting === undefined ? 1 : letter === undefined ? -1 : compare(waiting.place, letter.place, false);
    const front = order < 0 ? waiting! : letter!;
    const last = all.at(-1);
    if (all.length >= limit && (last === undefined || compare(last.front.place, front.place, true) !== 0)) break;
    all.push({ front, blocked: order < 0 ? failedKey(front) : heldKey(front, order === 0 ? waiting!.count : 0) });
    if (order <= 0) p++;
    if (order >= 0) d++;
  }
  return all.map(({ blocked }) => blocked);
}

function failedKey({ place, document, count }: Front): BlockedKey {
  const [first] = (document["errors"] as { at?: unknown }[] | undefined) ?? [];
  return {
    ...ofKey(place, document),
    attempts: numberOr(document["attempts"], 0) - numberOr(document["earlier_attempts"], 0),
    heldByDead: false,
    waiting: Math.min(COUNTED, count - 1),
    since: dateOf(first?.at),
    nextAttemptAt: dateOf(document["next_retry_at"]),
  };
}

function heldKey({ place, document }: Front, waiting: number): BlockedKey {
  return {
    ...ofKey(place, document),
    attempts: numberOr(document["attempts"], 0),
    heldByDead: true,
    waiting: Math.min(COUNTED, waiting),
    since: dateOf(document["died_at"]),
    nextAttemptAt: null,
  };
}

function ofKey({ position, ...key }: Place, document: Document) {
  const error = document["last_error"];
  const id = String(document["message_id"] ?? document["_id"]);
  return { ...key, position: BigInt(position), id, lastError: typeof error === "string" ? error : null };
}

const dateOf = (value: unknown): Date | null => (value instanceof Date ? value : null);

function placeOf(document: Document): Place {
  const { stream, key, position } = presentable(document);
  return {
    relay: String(document["relay"]),
    lane: numberOr(document["lane"], 0),
    stream: stream as string,
    key: key as string | null,
    position: Number(position),
  };
}

function afterOf({ position, ...key }: BlockedPlace): Place {
  return { ...key, position: Number(position ?? 0n) };
}

/** What comes after a place, as ranges of the index, one for each of its fields. */
function behind(place: Place | undefined): Document {
  if (place === undefined) return {};
  const { relay, lane, stream, key, position } = place;
  const later =
    key === null
      ? [
          { relay, lane, stream, key: null, position: { $gt: position } },
          { relay, lane, stream, key: { $gt: "" } },
        ]
      : [{ relay, lane, stream, key: { $gt: key } }];
  return {
    $or: [
      ...later,
      { relay, lane, stream: { $gt: stream } },
      { relay, lane: { $gt: lane } },
      { relay: { $gt: relay } },
    ],
  };
}

/** As the database orders them. The position tells only messages without a key apart. */
function compare(a: Place, b: Place, exact: boolean): number {
  const order =
    bytes(a.relay, b.relay) || a.lane - b.lane || bytes(a.stream, b.stream) || bytes(a.key ?? "", b.key ?? "");
  if (order !== 0 || (!exact && a.key !== null)) return order;
  return a.position - b.position;
}

function bytes(a: string, b: string): number {
  return a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b));
}
