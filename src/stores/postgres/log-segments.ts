import { dueSql, epochMs } from "./log-message.ts";
import type { SqlRunner } from "./postgres-client.ts";
import { SEGMENT_SIZE } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";

/** Clocks are set now and then: around a time, so much more is looked at. */
export const CLOCK_SLACK_MS = 60_000;

const DAY_MS = 86_400_000;

/** A segment of the log, and from when on its messages are; undefined while nothing may be in it yet. */
export interface LogSegment {
  readonly first: bigint;
  /** Positions of the next segment begin here. */
  readonly end: bigint;
  readonly openedAt: number | undefined;
}

/** The number of a segment is in the name of its table. */
export function segmentTable(names: Names, { first }: LogSegment): string {
  return names.of(`message_${first / SEGMENT_SIZE}`);
}

/** All segments, newest first. Their bounds are written out in statements, so that only one of them is planned for. */
export async function logSegments(sql: SqlRunner, names: Names): Promise<LogSegment[]> {
  const rows = await sql.query(`select n, ${epochMs("opened_at")} from ${names.segment} order by n desc`);
  return rows.map(([n, openedAt]) => ({
    first: BigInt(n!) * SEGMENT_SIZE,
    end: (BigInt(n!) + 1n) * SEGMENT_SIZE,
    openedAt: openedAt == null ? undefined : Number(openedAt),
  }));
}

/**
 * The first position of a segment with messages of this time or later, found by halves: positions and times are given at
 * the same moment. One of three neighbours may have been scheduled under an id that tells nothing of its time.
 */
export async function positionAt(sql: SqlRunner, names: Names, segment: LogSegment, time: Date): Promise<bigint> {
  const within = `m.position >= ${segment.first} and m.position < ${segment.end}`;
  const end = (order: "asc" | "desc") =>
    `(select m.position from ${names.message} m where ${within} order by m.position ${order} limit 1)`;
  const [row] = await sql.query(
    `with recursive probe(low, high, n) as (
       select ${end("asc")}, ${end("desc")}, 0
       union all
       select case when m.due < $1::text::timestamptz then m.position + 1 else p.low end,
         case when m.due < $1::text::timestamptz then p.high else p.middle - 1 end, p.n + 1
       from (select low, high, n, low + (high - low) / 2 as middle from probe) p
       cross join lateral (select min(m.position) as position, max(${dueSql("m")}) as due
         from (select m.position, m.id, m.created_at from ${names.message} m
           where ${within} and m.position >= p.middle order by m.position limit 3) m) m
       where p.low <= p.high and p.n < 64)
     select coalesce((select min(m.position) from (select m.position, m.id, m.created_at from ${names.message} m
         where ${within} and m.position >= p.low order by m.position limit 10) m where ${dueSql("m")} >= $1::text::timestamptz), p.low)
     from (select low from probe order by n desc limit 1) p`,
    [time.toISOString()],
  );
  return row?.[0] == null ? segment.first : BigInt(row[0]);
}

/** Where messages end that were enqueued before a time, of all segments. */
export async function endOfTime(
  sql: SqlRunner,
  names: Names,
  segments: readonly LogSegment[],
  time: Date,
): Promise<bigint> {
  const late = new Date(Math.min(time.getTime() + CLOCK_SLACK_MS, Date.now() + DAY_MS));
  const segment =
    segments.find(({ openedAt }) => openedAt !== undefined && openedAt <= late.getTime()) ?? segments.at(-1);
  return segment === undefined ? 0n : positionAt(sql, names, segment, late);
}
