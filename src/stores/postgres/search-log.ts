import type { MessageSearch } from "../../core/contracts.ts";
import type { Budget, Chunk, SearchPart } from "../shared/search-page.ts";
import { epochMs } from "./log-message.ts";
import { CLOCK_SLACK_MS, endOfTime, logSegments, type LogSegment } from "./log-segments.ts";
import { byLookUpIndex, indexedRows, isHashed, isIndexed, segmentsWithIndex, topOf } from "./look-up.ts";
import { rowsAt } from "./message-info.ts";
import { BY_POSITION, chunkOf, lookThrough, readStatus, searchConditions, type SearchScope } from "./search-scope.ts";

/** A key of many messages is found among the newest, before an index has to tell where its messages are. */
const NEWEST = 1000;
/** An index has to sort: it gives so many messages at once. Where they are close to each other, so many are walked through next. */
const [INDEXED, WALKED] = [4000, 16_000];
/** Where more messages than this have one id, those of a segment are walked through instead. */
const LISTED = 2000;

/** The log: by an index once the newest messages have been looked at, or segment by segment from the newest back. */
export function logPart(scope: SearchScope): SearchPart {
  const { sql, names, query } = scope;
  let newest = isHashed(query) ? NEWEST : 0;
  let segments: LogSegment[] | undefined;
  let indexed: ReadonlySet<bigint> | undefined;
  let isById = query.id !== undefined;
  return {
    name: "log",
    newestFirst: true,
    ...BY_POSITION,
    read: (positions) => readStatus(scope, rowsAt(names.message, positions)),
    async next(after, budget) {
      segments ??= await logSegments(sql, names);
      const before = after === undefined ? await startOf(scope, segments) : BigInt(after);
      if (isById) {
        const all = await byId(scope, before, budget.part);
        if (all !== undefined) return all;
        isById = false;
      }
      const at = segments.findIndex(({ first }) => before === undefined || first < before);
      const segment = segments[at];
      if (segment === undefined || isBefore(query.since, segments[at - 1]?.openedAt)) return undefined;
      const wantsIndex = isHashed(query) && newest <= 0;
      if (wantsIndex) indexed ??= await segmentsWithIndex(sql, names, segments);
      const useIndex = wantsIndex && indexed!.has(segment.first);
      const chunk: Chunk & { top?: bigint } = useIndex
        ? await byIndex(scope, segment, before, { ...budget, sight: Math.min(budget.sight, INDEXED) })
        : await walk(scope, segment, before, {
            ...budget,
            sight: Math.min(budget.sight, newest > 0 ? newest : Infinity),
          });
      const isDense = useIndex && !chunk.isLast && (chunk.top ?? 0n) - BigInt(chunk.after) < 8n * BigInt(chunk.seen);
      newest = isDense ? WALKED : newest - Math.max(1, chunk.seen);
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

/** The next messages of one segment that the look-up index has, from the newest back. */
async function byIndex(
  { sql, names, query }: SearchScope,
  segment: LogSegment,
  before: bigint | undefined,
  { sight, part }: Budget,
): Promise<Chunk & { top?: bigint }> {
  const top = before === undefined || before >= segment.end ? await topOf(sql, names, segment) : before - 1n;
  if (top === undefined) return chunkOf([], part, { last: undefined, seen: 0, isLast: true });
  const conditions = searchConditions(query);
  const most = isNarrowed(query) ? sight : Math.min(sight, part);
  const rows = indexedRows(names, query, conditions, { segment, top, order: "desc", most });
  const chunk = await byLookUpIndex(sql, () => lookThrough(sql, { rows, conditions, sight: most, part }));
  return { ...chunk, top };
}

/** By more than the look-up index knows of. */
function isNarrowed({ stream, type, since, until }: MessageSearch): boolean {
  return [stream, type, since, until].some((field) => field !== undefined);
}

/** All messages with an id; undefined when there are too many. Fenced: in the order of positions the server might walk the whole log. */
async function byId({ sql, names, query }: SearchScope, before: bigint | undefined, part: number) {
  const c = searchConditions(query);
  if (before !== undefined) c.and(`position < ${before}`);
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
