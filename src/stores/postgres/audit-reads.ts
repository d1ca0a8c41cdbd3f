import type { ReceiptInfo, ReceiptQuery, SentMessage, SentPage, SentQuery } from "../../core/contracts.ts";
import { uuidv7Time } from "../../core/uuid.ts";
import { pagePlace } from "../shared/checked-admin.ts";
import { furthest, NO_RECEIPT } from "../shared/furthest-receipt.ts";
import { dateOf, epochMs, finite } from "./log-message.ts";
import { BY_INDEX, BY_TIME, IN_ORDER, type PlannedTransactions } from "./planned-transactions.ts";
import { textArray, type Row, type SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";
import { FOREIGN, isDroppable, receiptDay } from "./receipt-days.ts";

/** How many messages a page looks at. */
const PAGE = 1000;
/** Clocks of writers and receivers may differ by this much. */
const CLOCKS_MS = 3_600_000;

/**
 * The part of the log between two times, in the order of positions. What was scheduled lies where it came due, among
 * messages that were enqueued then, and belongs to them.
 */
export async function readSent(
  transactions: PlannedTransactions,
  names: Names,
  query: SentQuery,
  noSuchRelay: (relay: string) => Error,
): Promise<SentPage> {
  const extent = query.after === undefined ? await extentOf(transactions, names, query) : placeOf(query.after);
  const { limit = PAGE } = query;
  return transactions.read(IN_ORDER, async (sql) => {
    const [relay] = await sql.query(
      `select pg_catalog.array_to_json(streams) from ${names.relay} where name = $1::text`,
      [query.relay],
    );
    if (relay === undefined) throw noSuchRelay(query.relay);
    const [oldest] = await sql.query(`select n, ${epochMs("opened_at")} from ${names.segment} order by n limit 1`);
    const keptSince = oldest === undefined || oldest[0] === "0" ? null : dateOf(oldest[1]!);
    if (extent === undefined) return { messages: [], next: null, keptSince };
    const { after, last } = extent;
    // Written out, so that only the segments of the range are planned for.
    const rows = await sql.query(
      `select position, id, stream, type, key, ${epochMs("created_at")} from ${names.message}
       where position > ${after} and position <= ${last} order by position limit ${limit}`,
    );
    const wanted = filterOf(query, relay[0] == null ? null : (JSON.parse(relay[0]) as string[]));
    const next = rows.length < limit ? null : `${rows.at(-1)![0]}/${last}`;
    return { messages: rows.map(sentMessage).filter(wanted), next, keptSince };
  });
}

interface Extent {
  after: string;
  last: string;
}

/** The positions of what was enqueued within the time; undefined when nothing was. */
async function extentOf(
  transactions: PlannedTransactions,
  names: Names,
  { since, until }: SentQuery,
): Promise<Extent | undefined> {
  const [row] = await transactions.read(BY_TIME, (sql) =>
    sql.query(
      `select min(position) - 1, max(position) from ${names.message}
       where created_at >= $1::text::timestamptz and created_at < $2::text::timestamptz`,
      [since.toISOString(), until.toISOString()],
    ),
  );
  return row?.[0] == null ? undefined : { after: row[0], last: row[1]! };
}

function placeOf(text: string): Extent {
  const [after, last] = pagePlace(text, /^(\d{1,19})\/(\d{1,19})$/);
  return { after: after!, last: last! };
}

function filterOf({ until, streams, types }: SentQuery, ofRelay: readonly string[] | null) {
  return ({ stream, type, createdAt }: SentMessage): boolean =>
    createdAt < until &&
    (ofRelay?.includes(stream) ?? !stream.startsWith("inbox.")) &&
    streams?.includes(stream) !== false &&
    types?.includes(type) !== false;
}

function sentMessage([position, id, stream, type, key, createdAt]: Row): SentMessage {
  return {
    id: id!,
    position: BigInt(position!),
    stream: stream!,
    type: type!,
    key: key!,
    createdAt: new Date(Number(createdAt)),
  };
}

/** Receipts by the day that is inside the id, as they are kept. */
export function readReceipts(
  transactions: PlannedTransactions,
  names: Names,
  { consumer, messages }: ReceiptQuery,
  retentionMs: number,
): Promise<ReceiptInfo[]> {
  const days = messages.map(({ id }) => receiptsDay(id));
  return transactions.read(BY_INDEX, async (sql) => {
    const perSource = await isPerSource(sql, names, consumer);
    const found = new Map<string, ReceiptInfo>();
    const gone = new Set<string>();
    for (const day of new Set(days)) {
      if (day === undefined) continue;
      const ids = messages.filter((_, i) => days[i] === day).map(({ id }) => id);
      const holders = perSource ? await holdersOf(sql, names, day, consumer) : [consumer];
      for (const row of await receiptsOf(sql, names, day, holders, ids))
        found.set(row[0]!, furthest(found.get(row[0]!), receiptInfo(row)));
      if (day !== FOREIGN && (await isGone(sql, names, day, retentionMs))) gone.add(day);
    }
    const oldest = Date.now() - retentionMs + CLOCKS_MS;
    return messages.map(({ id, createdAt }, i) => {
      const receipt = found.get(id);
      if (receipt !== undefined) return receipt;
      const expired = days[i] === FOREIGN ? createdAt.getTime() < oldest : gone.has(days[i] ?? "");
      return { ...NO_RECEIPT, status: expired ? "expired" : "none" };
    });
  });
}

/** Undefined: of a time for which no inbox keeps receipts. */
export function receiptsDay(id: string): string | undefined {
  const time = uuidv7Time(id);
  if (time !== undefined && time > Date.now() + 365 * 86_400_000) return undefined;
  return receiptDay(id);
}

async function isPerSource(sql: SqlRunner, names: Names, consumer: string): Promise<boolean> {
  const rows = await sql.query(
    `select 1 from ${names.receipt} where bucket = '${FOREIGN}' and consumer = $1::text and message_id = ''`,
    [consumer],
  );
  return rows.length > 0;
}

/** From one name to the next by the index: a consumer has as many as it has sources. */
async function holdersOf(sql: SqlRunner, names: Names, day: string, consumer: string): Promise<string[]> {
  const rows = await sql.query(
    `with recursive holder(name) as (
       select min(consumer) from ${names.receipt} where bucket = '${day}'
       union all
       select (select min(r.consumer) from ${names.receipt} r where r.bucket = '${day}' and r.consumer > holder.name)
       from holder where holder.name is not null)
     select name from holder where starts_with(name, $1::text || '@')`,
    [consumer],
  );
  return rows.map(([name]) => name!);
}

async function receiptsOf(
  sql: SqlRunner,
  names: Names,
  day: string,
  holders: readonly string[],
  ids: readonly string[],
): Promise<Row[]> {
  if (holders.length === 0) return [];
  return sql.query(
    `select message_id, status, ${epochMs(finite("received_at"))}, ${epochMs("processed_at")}, attempts, last_error
     from ${names.receipt} where bucket = '${day}' and consumer = any ($1::text::text[]) and message_id = any ($2::text::text[])`,
    [textArray(holders), textArray(ids)],
  );
}

/** Receipts of the day were dropped, or are no longer written. */
async function isGone(sql: SqlRunner, names: Names, day: string, retentionMs: number): Promise<boolean> {
  const [row] = await sql.query(
    `select ${isDroppable("$1::text::date")} or coalesce($1::text::date <= (select max(dropped_through) from ${names.receipt_floor}), false)`,
    [day, String(retentionMs)],
  );
  return row?.[0] === "t";
}

export function receiptInfo([, status, receivedAt, processedAt, attempts, lastError]: Row): ReceiptInfo {
  return {
    status: status as ReceiptInfo["status"],
    receivedAt: dateOf(receivedAt!),
    processedAt: dateOf(processedAt!),
    attempts: Number(attempts),
    lastError: lastError!,
  };
}
