import { copiedColumns } from "./copied-rows.ts";
import { messageColumns } from "./log-message.ts";
import { literal } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** Progress over a set of lanes, as last read from or written to the database. Positions and ids stay text. */
export interface Cursor {
  id: string;
  /** Epoch and token: what no other owner and no other history of the database can have, see `FENCE`. */
  fence: string;
  seq: bigint;
  prev: string;
  /** Undefined: no window is open. */
  cur: string | undefined;
  /** Array literal of the transactions that finished since `prev`; "{}" when there are none. */
  finished: string;
  lo: bigint;
  done: string;
  floor: string;
  crashes: number;
  /** How many owners died with messages that were tried alone and are not settled since, by position. */
  suspects: ReadonlyMap<string, number>;
  /** How many owners died with the message in hand that was last tried alone. */
  suspectCrashes: number;
  lanes: number[];
  /** Nothing below this position is new to the cursor: written into statements, it leaves settled segments out of their plans. */
  first: string;
  /** The last position handed out in this window. */
  fetched: string;
  /** Everything in this window was handed out. */
  exhausted: boolean;
  /** Settles since the row was made; see `renumber`. */
  writes: number;
}

/**
 * Raised whenever a cursor changes hands. The epoch alone would come again after a failover to a server that had not
 * heard of the last change: then a paused owner could settle for another one.
 */
export const FENCE = "(c.epoch::text || ':' || c.token)";

/** For a column `token`, with a risen epoch. */
export const NEW_TOKEN = "pg_catalog.gen_random_uuid()";

/** The condition that a cursor is as it was; each parameter by its number. */
export function fenced(id: number, fence: number, seq: number): string {
  return `c.id = $${id}::text::bigint and ${FENCE} = $${fence}::text and c.seq = $${seq}::text::bigint`;
}

export const CURSOR_COLUMNS: string =
  "c.id, (c.epoch::text || ':' || c.token), c.seq, c.prev, c.cur, c.fin, c.lo, c.done, c.floor, c.crashes, c.suspect, c.suspect_crashes, c.deaths";

export function cursorOf(row: readonly (string | null)[], lanes: number[]): Cursor {
  return {
    id: row[0]!,
    fence: row[1]!,
    seq: BigInt(row[2]!),
    prev: row[3]!,
    cur: row[4] ?? undefined,
    finished: row[5] ?? "{}",
    lo: row[6] == null ? 0n : BigInt(row[6]),
    done: row[7]!,
    floor: row[8]!,
    crashes: Number(row[9]),
    suspects: suspectsIn(row[10] ?? null, Number(row[11]), row[12] ?? null),
    suspectCrashes: Number(row[11]),
    lanes,
    first: "0",
    fetched: row[7]!,
    exhausted: false,
    writes: 0,
  };
}

/** Of the column `suspect`, which is negative while the message is put down, and of the column `deaths`. */
export function suspectsIn(
  suspect: string | null,
  crashes: number,
  deaths: string | null,
): ReadonlyMap<string, number> {
  const noted = deaths === null ? {} : (JSON.parse(deaths) as Record<string, { deaths: number }>);
  const counts = new Map(Object.entries(noted).map(([position, of]) => [position, of.deaths]));
  const last = suspect?.replace("-", "");
  // Processes of before 0.8 know that one only.
  if (last !== undefined) counts.set(last, Math.max(crashes, counts.get(last) ?? 0));
  return counts;
}

/** Makes the statement's commit durable even where the role or database defaults to asynchronous commits. */
export const DURABLE =
  "case when pg_catalog.current_setting('synchronous_commit') = 'off' then pg_catalog.set_config('synchronous_commit', 'on', true) end";

/** The row was written by the transaction it names: in a restored copy it was not, and its snapshots mean nothing. */
export const SOUND = "pg_catalog.mod(c.stamp::text::numeric, 4294967296) = c.xmin::text::numeric";

export const LEASE = (parameter: string): string => `pg_catalog.clock_timestamp() + ${parameter}::text::interval`;

export const MAX_POSITION = "9223372036854775807";

/** Positions of a segment of the log. */
export const SEGMENT_SIZE = 4_294_967_296n;

const OPENED = `cur = pg_catalog.pg_current_snapshot(), seq = c.seq + 1, done = 0, lease_until = ${LEASE("$1")},
  stamp = pg_catalog.pg_current_xact_id()`;

/** Of some transactions, those that have left messages by now. */
export function finishedOf(names: Names, transactions: string, first: string): string {
  // By their ids, in the order of these: where one transaction wrote most of a segment, the planner would walk it by position.
  return `array(select x from ${transactions} x where (select m.xid from ${names.message} m
    where m.xid >= x and m.xid <= x and m.position >= ${first} order by m.xid limit 1) is not null)`;
}

/** The lowest position past a horizon. The order keeps the planner on the index: by itself it may walk the settled log. */
export function lowestPast(names: Names, horizon: string, floor: string, first: string): string {
  return `(select pg_catalog.min(s.position) from (select m.position from ${names.message} m
    where m.xid >= ${horizon} and m.position > ${floor} and m.position >= ${first} order by m.xid offset 0) s)`;
}

/** What a cursor begins with when all of the log is new to it: before every transaction. */
export const BEGINNING = "1:1:";

/** The same for a cursor at the beginning: nothing is settled that could be walked, but all of the log would be looked at. */
function lowestOfAll(names: Names, horizon: string, floor: string): string {
  return `(select m.position from ${names.message} m
    where m.xid >= ${horizon} and m.position > ${floor} order by m.position limit 1)`;
}

/** As many as a window's row has columns. */
const NO_ROW = Array.from({ length: 14 }, () => "null").join(", ");

/**
 * Opens the next window of a cursor, if there is anything new. Its own transaction, durable before anything is
 * published: after a crash the server hands out unflushed xids again. Parameters: lease, id, fence, seq, xmax of prev,
 * floor, and the transactions that ran in prev if there are any. A row of nulls: the cursor is not what it was.
 */
export function openSql(
  names: Names,
  { prev, running, first }: { prev: string; running: boolean; first: string },
): string {
  const mine = fenced(2, 3, 4);
  const finished = running ? finishedOf(names, "pg_catalog.unnest($7::text::xid8[])", first) : "'{}'::xid8[]";
  const lowest = prev === BEGINNING ? lowestOfAll : lowestPast;
  return `
with news as materialized (
  select ${lowest(names, "$5::text::xid8", "$6::text::bigint", first)} as lo, ${finished} as fin),
opened as (update ${names.cursor} c set ${OPENED}, fin = news.fin, lo = coalesce(news.lo, ${MAX_POSITION})
  from news where ${mine} and c.cur is null and ${SOUND} and ${allVisible(names)} and (news.lo is not null or pg_catalog.cardinality(news.fin) > 0)
  returning ${CURSOR_COLUMNS}, ${DURABLE})
select * from opened union all
select ${NO_ROW} where not exists (select 1 from opened)
  and not exists (select 1 from ${names.cursor} c where ${mine})`;
}

/**
 * Opens windows of several cursors with one snapshot, whether there is anything new or not, so that they can be merged
 * when those are done. Parameters: lease, then id, fence and seq of each. A row of nulls: one of them is not what it was.
 */
export function openAllSql(names: Names, count: number, first: string): string {
  const mine = Array.from({ length: count }, (_, i) => `(${fenced(2 + i * 3, 3 + i * 3, 4 + i * 3)})`);
  return `
with opened as (update ${names.cursor} c set ${OPENED}, fin = ${finishedOf(names, "pg_catalog.pg_snapshot_xip(c.prev)", first)},
  lo = coalesce(${lowestPast(names, "pg_catalog.pg_snapshot_xmax(c.prev)", "c.floor", first)}, ${MAX_POSITION})
  where (${mine.join(" or ")}) and c.cur is null and ${SOUND} and ${allVisible(names)} returning ${CURSOR_COLUMNS}, ${DURABLE})
select * from opened union all
select ${NO_ROW} where (select pg_catalog.count(*) from ${names.cursor} c where ${mine.join(" or ")}) < ${count}`;
}

/** A window must not be opened over rows that row-level security may hide: it would step over them. */
export function allVisible(names: Names): string {
  return `not pg_catalog.row_security_active(${literal(names.message)})`;
}

/** Null when a window would hold something. Parameters: the snapshot seen last, xmax of prev, what ran in it. */
export function probeSql(names: Names): string {
  return `select ${names.no_news_until}($1, $2::text::xid8, $3::text::xid8[])`;
}

export interface PageShape {
  /** Also rows below lo, of transactions that were running in prev. */
  stragglers: boolean;
  lanes: boolean;
  streams: boolean;
  /** Of the cursor. */
  first: string;
}

/**
 * The next page of a window. Parameters: after, prev, cur, limit, inline, then fin, lo and after for stragglers, then
 * lanes and streams as the shape says. Of messages larger than `inline` bytes headers and body are left out, see
 * `largeBodiesSql`: summing up sizes in the database would cost as much as reading the page.
 */
export function pageSql(names: Names, shape: PageShape): string {
  return page(names, shape, messageColumns("$5::text::int"), (n, type) => `$${n}::text::${type}`);
}

/**
 * The same as a COPY in the binary format. That takes no parameters, and written into it they would make each page a
 * statement of its own to pg_stat_statements: so what differs from page to page is in settings of the transaction. Lanes,
 * streams and the segment to begin with stay the same for long. Wherever stragglers have to be found by their
 * transactions, the planner decides; otherwise it must not sort all that is left of a window, as it would while it takes
 * that for little.
 */
export function copyPageSql(names: Names, shape: PageShape, params: readonly string[]): string {
  const changing = params.slice(0, shape.stragglers ? 8 : 5);
  const values = changing.map(literal);
  // A connection may come back to its pool in a transaction that is older than the window. Rows that it cannot see
  // would count as missing: no snapshot then, so that the statement fails and its connection is closed.
  const later = `pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) > pg_catalog.pg_snapshot_xmax(${values[2]})`;
  values[2] = `(case when ${later} then ${values[2]} else 'from before the window' end)::pg_snapshot::text`;
  const settings = values.map((value, i) => `pg_catalog.set_config('txbox.page_${i + 1}', ${value}, true)`);
  // Rows that row-level security would hide make the statement fail instead.
  settings.push("pg_catalog.set_config('row_security', 'off', true)");
  if (!shape.stragglers) {
    for (const way of ["sort", "bitmapscan"]) settings.push(`pg_catalog.set_config('enable_${way}', 'off', true)`);
  }
  const once = (n: number, type: string) => `pg_catalog.current_setting('txbox.page_${n}')::${type}`;
  const value = (n: number, type: string) => {
    if (n > changing.length) return `${literal(params[n - 1]!)}::${type}`;
    // Not again for every row.
    return type === "pg_snapshot" ? `(select ${once(n, type)})` : once(n, type);
  };
  const after = BigInt(params[0]!);
  const segment = `position >= ${after - (after % SEGMENT_SIZE)}`;
  const rows = page(names, shape, copiedColumns(`(select ${once(5, "int")})`), value, segment);
  return `select ${settings.join(", ")}; copy (${rows}) to stdout (format binary)`;
}

function page(
  names: Names,
  shape: PageShape,
  columns: string,
  value: (n: number, type: string) => string,
  segment?: string,
): string {
  let n = shape.stragglers ? 8 : 5;
  const visible = [
    `not pg_catalog.pg_visible_in_snapshot(xid, ${value(2, "pg_snapshot")})`,
    `pg_catalog.pg_visible_in_snapshot(xid, ${value(3, "pg_snapshot")})`,
  ];
  if (shape.lanes) visible.push(`(lane & 63::smallint) = any (${value(++n, "smallint[]")})`);
  // A stored inbox keeps what it received in the same log: only a relay that asks for it gets that.
  visible.push(shape.streams ? `stream = any (${value(++n, "text[]")})` : "stream not like 'inbox.%'");
  const limit = `limit ${value(4, "int")}`;
  const rows = (...where: string[]) =>
    `select ${columns} from ${names.message} where ${[...where, ...visible].join(" and ")} order by position ${limit}`;
  const rest = rows(`position > ${value(1, "bigint")}`, ...(segment === undefined ? [] : [segment]));
  if (!shape.stragglers) return rest;
  const before = rows(
    `position > ${value(8, "bigint")}`,
    `position >= ${shape.first}`,
    `position < ${value(7, "bigint")}`,
    `xid = any (${value(6, "xid8[]")})`,
  );
  // Stragglers are few and lie below everything else of the window.
  return `select * from ((${before}) union all (${rest})) page order by position ${limit}`;
}

/** Headers and bodies left out of a page, with edits laid over them. Parameters: positions, relay. */
export function largeBodiesSql(names: Names): string {
  return `
select p.position, m.headers, m.payload, pg_catalog.encode(m.body, 'hex') from pg_catalog.unnest($1::text::bigint[]) p (position)
cross join lateral (
  select headers, payload, body, 1 as nth from ${names.edit} e where e.relay = $2::text and e.position = p.position
  union all (select headers, payload, body, 2 from ${names.all_message} a where a.position = p.position limit 1)
  order by nth limit 1) m`;
}
