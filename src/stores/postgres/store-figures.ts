import type { StoreFigures } from "../../core/contracts.ts";
import { dateOf, dueSql, epochMs, finite } from "./log-message.ts";
import type { SqlRunner } from "./postgres-client.ts";
import { SEGMENT_SIZE } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";
import { readActivity } from "./postgres-history.ts";
import { relayFigures } from "./relay-figures.ts";
import { holdersSql, isDueSql, segmentSql } from "./segment-holders.ts";

export interface Retention {
  retentionMs: number;
  abandonAfterMs: number | undefined;
}

/** Scheduled messages are counted up to here. */
const COUNTED = 10_000;
/** So many messages at either end of the log are looked at for streams that no relay reads. */
const LOOKED_AT = 1000;
/** Receipts have no index by status: failed ones are counted while all receipts together are no larger than this. */
const COUNTED_RECEIPT_BYTES = 32 * 2 ** 20;

/** Figures of the whole store, in a few statements whose cost does not grow with the log. */
export async function storeFigures(sql: SqlRunner, names: Names, retention: Retention): Promise<StoreFigures> {
  const relays = await relayFigures(sql, names);
  const holders = await retentionHolders(sql, names, retention);
  const { logBytes, receiptBytes, mayReadReceipts, mayReadSamples } = await sizes(sql, names);
  const isCountable = mayReadReceipts && receiptBytes <= COUNTED_RECEIPT_BYTES;
  return {
    relays: relays.map((relay) => ({ ...relay, holdsBackRetention: holders.has(relay.name) })),
    activity: mayReadSamples ? await readActivity(sql, names) : [],
    scheduled: await scheduled(sql, names),
    unread: await unread(sql, names),
    unarchivedSegments: await unarchivedSegments(sql, names, retention, holders),
    logBytes,
    receiptBytes,
    failedReceipts: isCountable ? await failedReceipts(sql, names) : null,
  };
}

/**
 * A relay that holds an older segment has not settled the youngest due one either: that one's messages are newer still.
 */
async function retentionHolders(
  sql: SqlRunner,
  names: Names,
  { retentionMs, abandonAfterMs }: Retention,
): Promise<ReadonlySet<string>> {
  const kept =
    abandonAfterMs === undefined
      ? ""
      : `and s.closed_at >= pg_catalog.clock_timestamp() - interval '${abandonAfterMs} ms'`;
  const [due] = await sql.query(
    `select s.n from ${names.segment} s where ${isDueSql(`interval '${retentionMs} ms'`)} ${kept} order by s.n desc limit 1`,
  );
  if (due === undefined) return new Set();
  // Through the log, which a role for relays may read: it may not read the tables of its segments.
  const rows = await sql.query(holdersSql(names, names.message, segmentSql(BigInt(due[0]!))));
  return new Set(rows.map(([relay]) => relay!));
}

/** None while a relay holds the oldest of them: then it is the relay that they wait for. */
async function unarchivedSegments(
  sql: SqlRunner,
  names: Names,
  { retentionMs }: Retention,
  holders: ReadonlySet<string>,
): Promise<number> {
  const [row] = await sql.query(
    `select count(*), min(s.n) from ${names.segment} s
     where ${isDueSql(`interval '${retentionMs} ms'`)} and s.archive_owner is not null and s.archived_at is null`,
  );
  const [count, oldest] = row!;
  if (oldest == null) return 0;
  const held =
    holders.size > 0 && (await sql.query(holdersSql(names, names.message, segmentSql(BigInt(oldest))))).length > 0;
  return held ? 0 : Number(count);
}

async function scheduled(sql: SqlRunner, names: Names): Promise<StoreFigures["scheduled"]> {
  const [row] = await sql.query(
    `select count(*), (select c.reltuples from pg_class c where c.oid = $1::text::regclass::oid),
       (select ${epochMs(finite("n.deliver_at"))} from ${names.scheduled} n order by n.deliver_at limit 1)
     from (select 1 from ${names.scheduled} order by deliver_at limit ${COUNTED + 1}) s`,
    [names.scheduled],
  );
  const [counted, estimate] = row!.slice(0, 2).map(Number) as [number, number];
  const nextAt = dateOf(row![2]!);
  return counted <= COUNTED
    ? { count: counted, estimated: false, nextAt }
    : { count: Math.max(counted, Math.round(estimate)), estimated: true, nextAt };
}

/** The bounds stand in the text: so only the segments at either end of the log are planned for. */
async function unread(sql: SqlRunner, names: Names): Promise<StoreFigures["unread"]> {
  const [ends] = await sql.query(
    `select (min(n) + 1) * ${SEGMENT_SIZE}, (max(n) filter (where opened_at is not null) - 1) * ${SEGMENT_SIZE} from ${names.segment}`,
  );
  const [firstEnd, lastStart] = ends!;
  const some = (where: string, order: string) =>
    `(select m.stream, m.id, m.created_at from ${names.message} m where ${where} order by m.position ${order} limit ${LOOKED_AT})`;
  const rows = await sql.query(
    `select m.stream, max(${epochMs(`clock_timestamp() - ${dueSql("m")}`)})
     from (${some(`m.position < ${firstEnd}`, "asc")} union all ${some(`m.position >= ${lastStart}`, "desc")}) m
     where not exists (select 1 from ${names.relay} r
       where case when r.streams is null then m.stream not like 'inbox.%' else m.stream = any (r.streams) end)
     group by m.stream`,
  );
  return rows
    .map(([stream, ms]) => ({ stream: stream!, oldestAgeMs: Math.max(0, Math.round(Number(ms))) }))
    .toSorted((a, b) => b.oldestAgeMs - a.oldestAgeMs);
}

interface Sizes {
  logBytes: number;
  receiptBytes: number;
  mayReadReceipts: boolean;
  mayReadSamples: boolean;
}

/**
 * Bytes of tables with all their partitions and indexes; a partition that is dropped meanwhile counts as nothing. And
 * whether this role may read receipts and samples: one for relays need not be allowed to.
 */
export async function sizes(sql: SqlRunner, names: Names): Promise<Sizes> {
  const bytes = (...tables: string[]) => {
    const parents = tables.map((table) => `${table}::text::regclass::oid`).join(", ");
    return `(select coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0) from pg_class c
       where c.oid in (${parents}) or c.oid in (select i.inhrelid from pg_inherits i where i.inhparent in (${parents})))`;
  };
  const [row] = await sql.query(
    `select ${bytes("$1", "$2")}, ${bytes("$3")}, pg_catalog.has_table_privilege($3::text, 'select'),
       pg_catalog.has_table_privilege($4::text, 'select')`,
    [names.message, names.kept_message, names.receipt, names.sample],
  );
  const [log, receipts, mayReadReceipts, mayReadSamples] = row!;
  return {
    logBytes: Number(log),
    receiptBytes: Number(receipts),
    mayReadReceipts: mayReadReceipts === "t",
    mayReadSamples: mayReadSamples === "t",
  };
}

export async function failedReceipts(sql: SqlRunner, names: Names): Promise<{ consumer: string; count: number }[]> {
  const rows = await sql.query(
    `select r.consumer, count(*) from ${names.receipt} r where r.status = 'failed' group by r.consumer`,
  );
  return rows
    .map(([consumer, count]) => ({ consumer: consumer!, count: Number(count) }))
    .toSorted((a, b) => (a.consumer < b.consumer ? -1 : 1));
}
