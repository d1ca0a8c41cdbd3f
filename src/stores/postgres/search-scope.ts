import type { MessageInfo, MessageSearch } from "../../core/contracts.ts";
import type { Chunk } from "../shared/search-page.ts";
import { Conditions } from "./conditions.ts";
import { dueSql, epochMs } from "./log-message.ts";
import { addLookUp, LOOKED_AT_COLUMNS } from "./look-up.ts";
import { infoSql, messageInfo, statusOver } from "./message-info.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** What every part of a search works with. */
export interface SearchScope {
  readonly sql: SqlRunner;
  readonly names: Names;
  readonly query: MessageSearch;
}

/** What is found again by its position. */
export const BY_POSITION = {
  isRef: (text: string): boolean => /^\d{1,19}$/.test(text),
  refOf: ({ position }: MessageInfo): string => String(position),
};

export const NEWEST_FIRST = "position desc nulls last, relay";

/**
 * Conditions on the message itself, in rows named s. What was scheduled counts from when it was enqueued until it was due.
 */
export function searchConditions(query: MessageSearch): Conditions {
  return addLookUp(new Conditions(), query)
    .add(query.stream, (p) => `stream = ${p}`)
    .add(query.type, (p) => `type = ${p}`)
    .add(query.since?.toISOString(), (p) => `${dueSql("s")} >= ${p}::timestamptz`)
    .add(query.until?.toISOString(), (p) => `created_at < ${p}::timestamptz`);
}

/** Messages, by a query for their rows, as the relays see them. */
export async function readStatus({ sql, names, query }: SearchScope, messages: string): Promise<MessageInfo[]> {
  const c = searchConditions(query)
    .add(query.relay, (p) => `relay = ${p}`)
    .add(query.status, (p) => `status = ${p}`);
  const rows = `select * from (${statusOver(names, messages)}) s ${c.where}`;
  return (await sql.query(infoSql(names, rows, NEWEST_FIRST, query.contents), c.params)).map(messageInfo);
}

interface Look {
  /** Rows in the order of positions, the highest first. */
  readonly rows: string;
  readonly conditions: Conditions;
  readonly sight: number;
  readonly part: number;
}

/** Looks at so many rows and no more, for those that match. */
export async function lookThrough(sql: SqlRunner, { rows, conditions, sight, part }: Look): Promise<Chunk> {
  const found = await sql.query(
    `with seen as materialized (select ${LOOKED_AT_COLUMNS} from (${rows} limit ${sight}) s)
     select position, ${epochMs("created_at")}, null from (
       select distinct position, created_at from seen s ${conditions.where} order by position desc limit ${part}) s
     union all
     select s.position, ${epochMs(dueSql("s"))}, n.seen from (select count(*) as seen from seen) n
     left join lateral (select * from seen order by position limit 1) s on true`,
    conditions.params,
  );
  const last = found.find(([, , seen]) => seen != null)!;
  const matching = found.filter((row) => row !== last);
  return chunkOf(matching, part, { last, seen: Number(last[2]), isLast: Number(last[2]) < sight });
}

/** Of rows of position and time. With as many as were wanted there may be more; else it was looked up to the last row. */
export function chunkOf(
  rows: readonly Row[],
  part: number,
  looked: { last: Row | undefined; seen: number; isLast: boolean },
): Chunk {
  const isCut = rows.length >= part;
  const [position, ms] = (isCut ? rows.at(-1) : looked.last) ?? [];
  return {
    refs: rows.map((row) => row[0]!),
    after: position ?? "0",
    seen: looked.seen,
    lastAt: ms == null ? undefined : new Date(Number(ms)),
    isLast: !isCut && looked.isLast,
  };
}
