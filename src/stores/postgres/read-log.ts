import type { Message } from "../../core/message.ts";
import { requireTime } from "../../core/options.ts";
import { readableMessage, whyUnreadable } from "../../core/readable-message.ts";
import { messageColumns, RowMessage } from "./log-message.ts";
import { BY_TIME, IN_ORDER, type PlannedTransactions } from "./planned-transactions.ts";
import type { Names } from "./postgres-names.ts";

/** Rows and bytes of one read: so much is in memory, and so long the process is busy with them. */
const PAGE_ROWS = 2000;
const PAGE_BYTES = 4 * 1024 * 1024;

/** A page of messages in the order of positions, with one more column if there is something to be told of each. */
export function pageSql(table: string, where: string, more?: string): string {
  const told = more === undefined ? "" : `, ${more} as told`;
  return `select ${messageColumns()}${more === undefined ? "" : ", told"} from (
    select *, sum(greatest(size, 0)) over (order by position) - greatest(size, 0) as before from (
      select m.*${told} from ${table} m where ${where} order by position limit ${PAGE_ROWS}) p) p
    where before < ${PAGE_BYTES} order by position`;
}

export interface LogQuery {
  /** Messages that were enqueued from then on. */
  since: Date;
  /** Messages that were enqueued before. Default: when reading begins. */
  until?: Date;
  /** Only what this relay has delivered; all, if there is no such relay. */
  deliveredBy?: string;
}

/**
 * Messages of the log in the order of positions, page by page: no snapshot is held, and one page is in memory. Those whose
 * row cannot be read are left out.
 */
export async function* readLog(
  transactions: PlannedTransactions,
  names: Names,
  { since, until, deliveredBy }: LogQuery,
): AsyncGenerator<Message> {
  requireTime("readLog", "since", since);
  if (until !== undefined) requireTime("readLog", "until", until);
  const [start] = await transactions.read(BY_TIME, (sql) =>
    sql.query(
      `select (select min(position) - 1 from ${names.message} where created_at >= $1::text::timestamptz),
         coalesce($2::text::timestamptz, clock_timestamp())::text, exists (select 1 from ${names.relay} where name = $3::text)`,
      [since.toISOString(), until?.toISOString() ?? null, deliveredBy ?? null],
    ),
  );
  const [first, end, known] = start!;
  if (first == null) return;
  const params = [since.toISOString(), end!, ...(known === "t" ? [deliveredBy!] : [])];
  const within = "m.created_at >= $2::text::timestamptz and m.created_at < $3::text::timestamptz";
  const told = known === "t" ? `${within} and ${deliveredSql(names, "$4::text")}` : within;
  for (let after = first; ;) {
    const rows = await transactions.read(IN_ORDER, (sql) =>
      sql.query(pageSql(names.message, "position > $1::text::bigint", told), [after, ...params]),
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last[0]!;
    for (const row of rows) {
      const message = new RowMessage(row);
      if (row[14] === "t" && whyUnreadable(message) === undefined) yield readableMessage(message);
    }
  }
}

/**
 * Of its streams, seen by the cursor of its lane, and neither parked, nor dead, nor given up. What was skipped by a start or
 * a rewind to now, or lies before a rebase, is in no batch.
 */
function deliveredSql(names: Names, relay: string): string {
  return `exists (select 1 from ${names.relay} r where r.name = ${relay}
      and case when r.streams is null then m.stream not like 'inbox.%' else m.stream = any (r.streams) end)
    and exists (select 1 from ${names.lane} l join ${names.cursor} c on c.id = l.cursor_id
      where l.relay = ${relay} and l.lane = m.lane & 63::smallint and (m.position <= c.floor or pg_visible_in_snapshot(m.xid, c.prev)
        or c.cur is not null and m.position <= c.done and pg_visible_in_snapshot(m.xid, c.cur)))
    and not exists (select 1 from ${names.parked} p where p.relay = ${relay} and p.position = m.position)
    and not exists (select 1 from ${names.dead} d where d.relay = ${relay} and d.position = m.position and d.state <> 'requeued')
    and (exists (select 1 from ${names.delivery} v where v.relay = ${relay} and v.position = m.position and v.published_at is not null)
      or exists (select 1 from ${names.batch} b where b.relay = ${relay} and b.upto >= m.position and b.after < m.position
        and (b.lanes >> (m.lane & 63::smallint)) & 1 = 1
        and pg_visible_in_snapshot(m.xid, b.cur) and not pg_visible_in_snapshot(m.xid, b.prev)))`;
}
