import type { Budget, Chunk, SearchPart } from "../shared/search-page.ts";
import { epochMs } from "./log-message.ts";
import { CLOCK_SLACK_MS, endOfTime, logSegments, type LogSegment } from "./log-segments.ts";
import { isIndexed } from "./look-up.ts";
import { rowsAt } from "./message-info.ts";
import { BY_POSITION, chunkOf, lookThrough, readStatus, searchConditions, type SearchScope } from "./search-scope.ts";

/** A key of many messages is found among the newest, before an index has to tell where all of its messages are. */
const NEWEST = 4000;
/** An index knows no order: where it has more messages than this, those of a segment are walked through instead. */
const LISTED = 2000;

/** The log: by the look-up index once the newest messages have been looked at, or segment by segment from the newest back. */
export function logPart(scope: SearchScope): SearchPart {
  const { sql, names, query } = scope;
  let newest = query.id === undefined ? NEWEST : 0;
  let segments: LogSegment[] | undefined;
  let isFrequent = false;
  return {
    name: "log",
    newestFirst: true,
    ...BY_POSITION,
    read: (positions) => readStatus(scope, rowsAt(names.message, positions)),
    async next(after, budget) {
      segments ??= await logSegments(sql, names);
      const before = after === undefined ? await startOf(scope, segments) : BigInt(after);
      const useIndex = isIndexed(query) && newest <= 0;
      if (useIndex && !isFrequent) {
        const all = await byIndex(scope, before, budget.part);
        if (all !== undefined) return all;
        isFrequent = true;
      }
      const at = segments.findIndex(({ first }) => before === undefined || first < before);
      const segment = segments[at];
      if (segment === undefined || isBefore(query.since, segments[at - 1]?.openedAt)) return undefined;
      const listed = useIndex ? await byIndex(scope, before, budget.part, segment) : undefined;
      const sight = useIndex || !isIndexed(query) ? budget.sight : Math.min(newest, budget.sight);
      const chunk = listed ?? (await walk(scope, segment, before, { ...budget, sight }));
      newest -= Math.max(1, chunk.seen);
      if (isBefore(query.since, chunk.lastAt?.getTime())) return { ...chunk, isLast: true };
      // The older segments are left.
      return chunk.isLast ? { ...chunk, after: String(segment.first), isLast: false } : chunk;
    },
  };
}

/** Positions are looked at below this one; undefined: all. */
async function startOf({ sql, names, query }: SearchScope, segments: readonly LogSegment[]) {
  const { until } = query;
  return until === undefined || isIndexed(query) ? undefined : endOfTime(sql, names, segments, until);
}

/** All that is left was enqueued before the time that is asked for. */
function isBefore(since: Date | undefined, ms: number | undefined): boolean {
  return since !== undefined && ms !== undefined && ms < since.getTime() - CLOCK_SLACK_MS;
}

/** The next messages of one segment, from the newest back. Without a condition no more are read than are wanted. */
async function walk(
  { sql, names, query }: SearchScope,
  { first, end }: LogSegment,
  before: bigint | undefined,
  { sight, part }: Budget,
): Promise<Chunk> {
  const conditions = searchConditions(query);
  const top = before === undefined || before > end ? end : before;
  return lookThrough(sql, {
    rows: `select * from ${names.message} where position >= ${first} and position < ${top} order by position desc`,
    conditions,
    sight: conditions.where === "" ? Math.min(sight, part) : sight,
    part,
  });
}

/**
 * What an index has, of all segments or of one; undefined when it has too much. Fenced: in the order of positions the
 * server might walk the whole log. Such an index gives its rows as bitmaps only.
 */
async function byIndex(
  { sql, names, query }: SearchScope,
  before: bigint | undefined,
  part: number,
  segment?: LogSegment,
): Promise<Chunk | undefined> {
  const c = searchConditions(query, true);
  if (before !== undefined) c.and(`position < ${before}`);
  if (segment !== undefined) c.and(`position >= ${segment.first} and position < ${segment.end}`);
  await sql.query("select pg_catalog.set_config('enable_bitmapscan', 'on', true)");
  const rows = await sql.query(
    `select position, ${epochMs("created_at")} from (select position, created_at from ${names.message} s ${c.where} limit ${LISTED + 1}) s
     order by position desc`,
    c.params,
  );
  await sql.query("select pg_catalog.set_config('enable_bitmapscan', 'off', true)");
  if (rows.length > LISTED) return undefined;
  const wanted = rows.slice(0, part);
  return chunkOf(wanted, part, { last: rows.at(-1), seen: wanted.length, isLast: true });
}
