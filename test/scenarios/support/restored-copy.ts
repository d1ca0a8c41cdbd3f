import type pg from "pg";

/** Tables in the order of their references. */
const TABLES = [
  "segment",
  "message",
  "kept_message",
  "enqueued_id",
  "scheduled",
  "relay",
  "cursor",
  "lane",
  "member",
  "blocked",
  "parked",
  "delivery",
  "dead",
  "batch",
];

/**
 * Copies all rows into a migrated, empty database as a dump and restore does: the same values, written by transactions
 * of the target. Sequences are set as pg_dump does, unless told otherwise (logical replication does not bring them).
 */
export async function copyRows(from: pg.Pool, to: pg.Pool, { sequences = true } = {}): Promise<void> {
  for (const table of TABLES.toReversed()) await to.query(`delete from txbox.${table}`);
  for (const table of TABLES) {
    const { rows } = await from.query<{ row: string }>(`select t::text as row from txbox.${table} t`);
    await to.query(
      `insert into txbox.${table} overriding system value
       select (r.t).* from (select x::txbox.${table} as t from unnest($1::text[]) x) r`,
      [rows.map(({ row }) => row)],
    );
  }
  if (!sequences) return;
  const { rows } = await from.query<{ name: string; value: string | null }>(
    "select schemaname || '.' || sequencename as name, last_value::text as value from pg_sequences where schemaname = 'txbox'",
  );
  for (const { name, value } of rows) if (value !== null) await to.query("select setval($1, $2)", [name, value]);
}
