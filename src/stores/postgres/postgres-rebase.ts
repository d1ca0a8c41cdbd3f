import { COPIED_COLUMNS } from "./log-message.ts";
import type { Database } from "./postgres-client.ts";
import { NEW_TOKEN, SOUND } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";
import { PINNED_PATH } from "./search-path.ts";

export interface RebaseReport {
  /** Messages that some relay had not delivered: enqueued again with their ids, in order. */
  republished: number;
  /** Positions up to here belong to the copy's past. */
  floor: bigint;
}

/**
 * The row was written on this server, not restored: it carries the id of the transaction that wrote it. A subtransaction
 * has an id of its own, a little later; a restore writes rows of many transactions in one. In doubt: written here, since
 * a repeat does no harm.
 */
const WRITTEN_HERE = `(w.of_one and mod(m.xmin::text::numeric - mod(m.xid::text::numeric, 4294967296) + 4294967296, 4294967296) < 1000000)`;

/** The first id of a transaction: in the past of every snapshot, but for one that begins with the whole log. */
const LONG_AGO = "3";

/**
 * Transaction ids of a restored copy are those of another server: they say nothing here. Every relay gets a floor below
 * which it never looks. Messages that were pending are enqueued again above it, and so are those written since the
 * restore.
 */
export async function rebase(database: Database, names: Names): Promise<RebaseReport> {
  return database.transaction(async (_, sql) => {
    await sql.query(PINNED_PATH);
    // Taken before this transaction has an xid: its own snapshot would call that visible.
    const [snapshot] = await sql.query("select pg_current_snapshot()");
    await sql.query(`lock table ${names.cursor}, ${names.message} in exclusive mode`);
    const [highest] = await sql.query(
      `select greatest(coalesce(max(position), 0), coalesce((select max(floor) from ${names.cursor}), 0)) from ${names.message}`,
    );
    const floor = BigInt(highest![0]!);
    // Logical replication and some restores do not bring sequences along.
    await sql.query(
      `select setval(pg_get_serial_sequence($1::text, 'position'), greatest($2::text::bigint,
         (select last_value from pg_sequences where (quote_ident(schemaname) || '.' || quote_ident(sequencename))::regclass
           = pg_get_serial_sequence($1::text, 'position')::regclass), 1))`,
      [names.message, String(floor)],
    );
    for (const [table, column] of [
      [names.cursor, "id"],
      [names.scheduled, "n"],
    ] as const) {
      await sql.query(
        `select setval(s.seq, greatest((select max(${column}) from ${table}), pg_sequence_last_value(s.seq), 1))
         from (select pg_get_serial_sequence($1::text, '${column}')::regclass as seq) s`,
        [table],
      );
    }
    const again = await sql.query(
      `with writer as materialized (select m.xmin::text as xmin, count(distinct m.xid::text) = 1 as of_one from ${names.message} m group by 1)
       insert into ${names.message} (${COPIED_COLUMNS})
       select ${COPIED_COLUMNS} from ${names.message} m join writer w on w.xmin = m.xmin::text
       where m.position <= $1::text::bigint and exists (
         select 1 from ${names.relay} r join ${names.lane} l on l.relay = r.name and l.lane = m.lane & 63::smallint
           join ${names.cursor} c on c.id = l.cursor_id
         where (r.streams is null and m.stream not like 'inbox.%' or m.stream = any (r.streams)) and m.position > c.floor
           and (not (${SOUND}) and ${WRITTEN_HERE}
             or not pg_visible_in_snapshot(m.xid, c.prev)
               and not (c.cur is not null and pg_visible_in_snapshot(m.xid, c.cur) and m.position <= c.done))
           and not exists (select 1 from ${names.parked} p where p.relay = r.name and p.position = m.position)
           and not exists (select 1 from ${names.dead} d where d.relay = r.name and d.position = m.position and d.state <> 'requeued'))
       order by m.position returning 1`,
      [String(floor)],
    );
    await sql.query(
      `update ${names.cursor} set prev = $1::text::pg_snapshot, cur = null, fin = null, lo = null, done = 0, floor = $2::text::bigint,
         owner = null, lease_until = clock_timestamp(), epoch = epoch + 1, token = ${NEW_TOKEN}, seq = seq + 1, crashes = 0,
         suspect = null, suspect_crashes = 0, deaths = null, wal_lsn = null, ahead = null, stamp = pg_current_xact_id()`,
      [snapshot![0]!, String(floor)],
    );
    // A relay that begins with the whole log must not meet ids that this server has yet to give out, or gives out now.
    await sql.query(
      `update ${names.message} set xid = '${LONG_AGO}' where xid >= pg_snapshot_xmin($1::text::pg_snapshot) and position <= $2::text::bigint`,
      [snapshot![0]!, String(floor)],
    );
    // Closed segments have no writers left: the lock above has waited for them.
    await sql.query(
      `update ${names.segment} set writers = '{}', horizon = pg_snapshot_xmax(pg_current_snapshot()) where closed_at is not null`,
    );
    return { republished: again.length, floor };
  });
}
