import { dueSql, epochMs } from "./log-message.ts";
import type { SqlRunner } from "./postgres-client.ts";
import { SEGMENT_SIZE } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";

/** What a cursor has not settled. */
export interface Backlog {
  pending: number;
  /** More lies behind the cursor than is counted. */
  estimated: boolean;
  oldestAgeMs: number | null;
}

/** Up to here the messages behind a cursor are looked at, and for all cursors together up to the second number. */
const LOOKED_AT = 10_000;
const LOOKED_AT_IN_ALL = 200_000;
const LEAST_LOOKED_AT = 100;
/** Over how many positions of a segment the share of rows per position is taken. */
const SAMPLE = 1000;

/** Segments whose messages are all older than a transaction hold nothing for a cursor that has seen that transaction. */
export const firstSegment = (names: Names, transaction: string): string =>
  `(select coalesce(min(s.n), 0) * ${SEGMENT_SIZE} from ${names.segment} s where s.horizon is null or s.horizon > ${transaction})`;

/**
 * Messages of the transaction x. As a range, in its order: so only the index over transactions will do. By an equality the
 * planner may walk a whole segment instead, where it takes x for one that has written most of it.
 */
export const OF_ONE = "m.xid >= x and m.xid <= x";

/** What was found behind a cursor within a limit. */
interface Look {
  id: string;
  seen: number;
  /** Rows were left out. */
  cut: boolean;
  matching: number;
  first: bigint;
  late: number;
  ages: number[];
  /** Of the oldest row, for any relay. */
  unreadMs: number;
}

/**
 * The backlog of every cursor, by its id, without what is parked. Where too much that is for others lies before it to know,
 * it counts as one message, as old as the oldest that its relay has not read: never as nothing.
 */
export async function backlogs(sql: SqlRunner, names: Names): Promise<Map<string, Backlog>> {
  const [extent] = await sql.query(
    `select count(*), ${firstSegment(names, "min(pg_snapshot_xmin(c.prev)::text::numeric)::text::xid8")} from ${names.cursor} c`,
  );
  const [cursors, from] = extent!;
  if (cursors === "0") return new Map();
  const share = (among: number) => Math.max(LEAST_LOOKED_AT, Math.floor(LOOKED_AT_IN_ALL / among));
  const found = await look(sql, names, { from: from!, limit: Math.min(LOOKED_AT, share(Number(cursors))) });
  // A relay of a rare stream may have all of the others before it.
  const unclear = found.filter(isUnclear).map(({ id }) => id);
  if (unclear.length > 0) {
    const again = await look(sql, names, { from: from!, limit: share(unclear.length), only: unclear });
    const byId = new Map(again.map((one) => [one.id, one]));
    found.forEach(({ id }, i) => (found[i] = byId.get(id) ?? found[i]!));
  }
  const large = found.filter(({ cut, matching }) => cut && matching > 0);
  const lowest = large.reduce((least, { first }) => (first < least ? first : least), 2n ** 63n - 1n);
  const segments = large.length === 0 ? [] : await segmentsFrom(sql, names, lowest);
  return new Map(
    found.map((one) => {
      const { id, seen, cut, matching, first, late, ages } = one;
      const estimate = cut && matching > 0 ? Math.round((rowsFrom(segments, first) * matching) / seen) : 0;
      const least = isUnclear(one) ? 1 : matching;
      if (isUnclear(one)) ages.push(one.unreadMs);
      return [
        id,
        {
          pending: Math.max(least, estimate) + late,
          estimated: cut,
          oldestAgeMs: ages.length === 0 ? null : Math.max(...ages),
        },
      ];
    }),
  );
}

const isUnclear = ({ cut, matching }: Look): boolean => cut && matching === 0;

interface Scope {
  from: string;
  limit: number;
  /** Ids of cursors; all without it. */
  only?: readonly string[];
}

async function look(sql: SqlRunner, names: Names, scope: Scope): Promise<Look[]> {
  const rows = await sql.query(backlogsSql(names, scope));
  return rows.map(([id, seen, matching, first, pastMs, unreadMs, late, lateMs]) => ({
    id: id!,
    seen: Number(seen),
    cut: Number(seen) > scope.limit,
    matching: Number(matching),
    first: BigInt(first ?? 0),
    late: Number(late),
    ages: [pastMs, lateMs].flatMap((ms) => (ms == null ? [] : [Number(ms)])),
    unreadMs: Number(unreadMs ?? 0),
  }));
}

/**
 * What a cursor has before it. With no window open: all past the horizon of `prev`. In a window: what lies above the place
 * that it has reached, and below that what the window does not show. In both cases the messages of transactions that were
 * running in `prev` besides. The first segment stands in the text: so the planner leaves the settled ones alone, however
 * many there are.
 */
function backlogsSql(names: Names, { from, limit, only }: Scope): string {
  const rows = (where: string, order: string, start = "start") =>
    `select m.position, m.id, m.created_at, m.lane, m.stream, m.xid from ${names.message} m
     where m.position >= ${from} and m.position >= c.${start} and m.position > c.floor and ${where} order by ${order}`;
  const some = `limit ${limit + 1}`;
  const ofRelay = `(c.lanes >> m.lane) & 1 = 1
      and case when c.streams is null then m.stream not like 'inbox.%' else m.stream = any (c.streams) end`;
  const past = `m.xid >= c.horizon and ${ofRelay}`;
  const age = (due: string) => epochMs(`clock_timestamp() - ${due}`);
  const due = dueSql("m");
  return `
select c.id, past.seen, past.matching, past.first, ${age("past.due")}, ${age("past.oldest")}, late.matching, ${age("late.due")}
from (
  select c.id, c.prev, c.cur, c.done, c.floor, pg_snapshot_xmax(c.prev) as horizon, r.streams,
    (select bit_or(1::bigint << l.lane) from ${names.lane} l where l.relay = c.relay and l.cursor_id = c.id) as lanes,
    greatest(coalesce(c.lo, 0) - 1, c.done) as reached,
    ${firstSegment(names, "pg_snapshot_xmax(c.prev)")} as start, ${firstSegment(names, "pg_snapshot_xmin(c.prev)")} as late_start
  from ${names.cursor} c join ${names.relay} r on r.name = c.relay
  ${only === undefined ? "" : `where c.id in (${only.join(", ")})`}
  offset 0) c
cross join lateral (
  select count(*) as seen, count(*) filter (where ${past}) as matching, min(m.position) filter (where ${past}) as first,
    min(${due}) filter (where ${past}) as due, min(m.created_at) as oldest
  from (
    (${rows("c.cur is null and m.xid >= c.horizon", "m.xid")} ${some})
    union all
    (${rows("c.cur is not null and m.position > c.reached", "m.position")} ${some})
    union all
    select m.* from (${rows("c.cur is not null and m.xid >= pg_snapshot_xmax(c.cur)", "m.xid")} ${some}) m where m.position <= c.reached
    union all
    select m.* from pg_snapshot_xip(c.cur) x cross join lateral (${rows(OF_ONE, "m.xid")} offset 0) m
    where x >= c.horizon and m.position <= c.reached) m) past
cross join lateral (
  select count(*) as matching, min(${due}) as due from pg_snapshot_xip(c.prev) x
  cross join lateral (${rows(OF_ONE, "m.xid", "late_start")} offset 0) m
  where ${ofRelay} and (c.cur is null or m.position > c.done or not pg_visible_in_snapshot(m.xid, c.cur))) late`;
}

export interface Segment {
  first: bigint;
  last: bigint;
  /** Rows per position, lately. */
  density: number;
}

/** Segments leave gaps between each other, so each is measured on its own. */
export async function segmentsFrom(sql: SqlRunner, names: Names, position: bigint): Promise<Segment[]> {
  const from = position - (position % SEGMENT_SIZE);
  const own = `m.position >= ${from} and m.position >= s.n * ${SEGMENT_SIZE} and m.position < (s.n + 1) * ${SEGMENT_SIZE}`;
  const end = (order: "asc" | "desc") =>
    `(select m.position from ${names.message} m where ${own} order by m.position ${order} limit 1)`;
  const rows = await sql.query(
    `select s.first, s.last, (select count(*) from ${names.message} m where ${own} and m.position > s.last - ${SAMPLE} and m.position <= s.last)
     from (select s.n, ${end("asc")} as first, ${end("desc")} as last from ${names.segment} s
       where s.n * ${SEGMENT_SIZE} >= ${from} offset 0) s
     where s.last is not null`,
  );
  return rows.map(([first, last, sampled]) => {
    const span = Number(BigInt(last!) - BigInt(first!) + 1n);
    return { first: BigInt(first!), last: BigInt(last!), density: Number(sampled) / Math.min(SAMPLE, span) };
  });
}

export function rowsFrom(segments: readonly Segment[], position: bigint): number {
  return segments.reduce((sum, { first, last, density }) => {
    const from = position > first ? position : first;
    return from > last ? sum : sum + Number(last - from + 1n) * density;
  }, 0);
}
