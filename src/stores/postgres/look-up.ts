import type { MessageSearch } from "../../core/contracts.ts";
import { Conditions } from "./conditions.ts";
import { type LogSegment, segmentTable } from "./log-segments.ts";
import type { SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

type Fields = Pick<MessageSearch, "id" | "key" | "aggregateType" | "aggregateId" | "correlationId">;

/** Whether an index of the log has what is asked for. */
export function isIndexed(query: Fields): boolean {
  return query.id !== undefined || isHashed(query);
}

/** Whether the look-up index has what is asked for. */
export function isHashed({ key, aggregateId, correlationId }: Fields): boolean {
  return key !== undefined || aggregateId !== undefined || correlationId !== undefined;
}

/** The look-up index keeps so many positions apart from the next ones: 2 to the power of this. */
const BUCKET_BITS = 16n;

/** What the look-up index of the log holds, written as it is there: key, aggregate and correlation share one. */
const ENTRIES = `array[${["key", "coalesce(aggregate_id, key)", "coalesce(correlation_id, key)"]
  .map((value) => `(position >> ${BUCKET_BITS} << 32) | (hashtext(${value})::bigint & 4294967295)`)
  .join(", ")}]`;

/** What tells whether a message is wanted. */
export const LOOKED_AT_COLUMNS =
  "position, id, stream, type, key, aggregate_type, aggregate_id, correlation_id, created_at";

/** Conditions on what a message is about. */
export function addLookUp(c: Conditions, query: Fields): Conditions {
  return (
    c
      .add(query.id, (p) => `id = ${p}`)
      .add(query.key, (p) => `key = ${p}`)
      .add(query.aggregateType, (p) => `aggregate_type = ${p}`)
      .add(query.aggregateId, (p) => `aggregate_id = ${p}`)
      // A message without a correlation of its own is the first of its chain.
      .add(query.correlationId, (p) => `(correlation_id = ${p} or id = ${p} and correlation_id is null)`)
  );
}

/**
 * Which segments have the look-up index. Until a migration has built it, each bucket of a segment would be a walk through
 * all of that: then the segment is to be walked through once.
 */
export async function segmentsWithIndex(
  sql: SqlRunner,
  names: Names,
  segments: readonly LogSegment[],
): Promise<ReadonlySet<bigint>> {
  if (segments.length === 0) return new Set();
  const c = new Conditions();
  const list = segments.map((segment) => `(${segment.first}::bigint, ${c.parameter(segmentTable(names, segment))})`);
  const rows = await sql.query(
    `select s.first from (values ${list.join(", ")}) s (first, name)
     where exists (select from pg_index x join pg_class i on i.oid = x.indexrelid join pg_am a on a.oid = i.relam and a.amname = 'gin'
       where x.indrelid = to_regclass(s.name) and x.indisvalid and pg_get_indexdef(x.indexrelid) like '%>> ${BUCKET_BITS}%')`,
    c.params,
  );
  return new Set(rows.map(([first]) => BigInt(first!)));
}

/** Which rows of a segment are wanted. */
export interface IndexedRows {
  readonly segment: LogSegment;
  /** The highest position of interest. */
  readonly top: bigint;
  readonly order: "asc" | "desc";
  /** More than so many are not wanted at once. */
  readonly most: number;
  readonly after?: bigint | undefined;
}

/**
 * Rows that the look-up index has, in the order of positions and a few others: to be limited, and checked by `addLookUp`.
 * The index has an order from bucket to bucket only. So they are asked for one by one, and no more of them than it takes.
 */
export function indexedRows(
  names: Names,
  query: Fields,
  c: Conditions,
  { segment: { first, end }, top, order, most, after = first - 1n }: IndexedRows,
): string {
  const [low, high] = [after + 1n, top].map((position) => position >> BUCKET_BITS);
  const entry = (p: string) => `${ENTRIES} @> array[(b.n << 32) | (hashtext(${p})::bigint & 4294967295)]`;
  const parts = [query.key, query.aggregateId].flatMap((value) =>
    value === undefined ? [] : entry(c.parameter(value)),
  );
  if (query.correlationId !== undefined) {
    const p = c.parameter(query.correlationId);
    parts.push(`(${entry(p)} or id = ${p} and position >> ${BUCKET_BITS} = b.n)`);
  }
  // The bounds of the segment are for the planner, the others must be none for the primary key: it would read all between them.
  return `select m.* from (select n from generate_series(${low}::bigint, ${high}::bigint) n order by n ${order}) b
    cross join lateral (select ${LOOKED_AT_COLUMNS} from ${names.message}
      where position >= ${first} and position < ${end} and position + 0 between ${after + 1n} and ${top} and ${parts.join(" and ")}
      order by position ${order} limit ${most}) m
    order by b.n ${order}, m.position ${order}`;
}

/** The look-up index gives its rows as bitmaps only; any other index would have to read the log. */
export async function byLookUpIndex<T>(sql: SqlRunner, run: () => Promise<T>): Promise<T> {
  await sql.query(settings({ bitmapscan: "on", indexscan: "off", indexonlyscan: "off" }));
  const result = await run();
  await sql.query(settings({ bitmapscan: "off", indexscan: "on", indexonlyscan: "on" }));
  return result;
}

function settings(values: Readonly<Record<string, "on" | "off">>): string {
  const set = Object.entries(values).map(
    ([name, value]) => `pg_catalog.set_config('enable_${name}', '${value}', true)`,
  );
  return `select ${set.join(", ")}`;
}

/** The highest position of a segment; undefined when it is empty. */
export async function topOf(sql: SqlRunner, names: Names, { first, end }: LogSegment): Promise<bigint | undefined> {
  const rows = await sql.query(
    `select position from ${names.message} where position >= ${first} and position < ${end} order by position desc limit 1`,
  );
  return rows[0]?.[0] == null ? undefined : BigInt(rows[0][0]);
}
