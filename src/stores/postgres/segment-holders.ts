import { SEGMENT_SIZE } from "./postgres-cursor.ts";
import type { SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** Whether a segment `s` is past its retention, and nothing can be added to it any more. */
export function isDueSql(retention: string): string {
  return `s.closed_at < pg_catalog.clock_timestamp() - ${retention}
         and s.horizon <= pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())`;
}

/** Relays that have not settled everything in a table of messages, or in a part of it. A cursor without lanes has nothing to settle. */
export function holdersSql(names: Names, table: string, part = "true"): string {
  const first = (where: string) =>
    `(select m.xid from ${table} m where ${part} and ${where} and m.position > c.floor order by m.xid limit 1) is not null`;
  return `select distinct c.relay from ${names.cursor} c
       where exists (select 1 from ${names.lane} l where l.relay = c.relay and l.cursor_id = c.id)
         and (${first("m.xid >= pg_catalog.pg_snapshot_xmax(c.prev)")}
           or exists (select 1 from pg_catalog.pg_snapshot_xip(c.prev) x where ${first("m.xid >= x and m.xid <= x")}))`;
}

/** Relays that have not settled everything in a segment that is there. */
export async function segmentHolders(sql: SqlRunner, names: Names, n: string): Promise<string[]> {
  const rows = await sql.query(
    `${holdersSql(names, names.of(`message_${n}`))}
       union all select '(no relay yet)' where not exists (select 1 from ${names.relay})`,
  );
  return rows.map((row) => row[0]!);
}

/** A segment as a part of the log. Written out, so that no other segment is planned for. */
export function segmentSql(n: bigint): string {
  return `m.position >= ${n * SEGMENT_SIZE} and m.position < ${(n + 1n) * SEGMENT_SIZE}`;
}
