import { createHash } from "node:crypto";
import { errorCode } from "../../../core/errors.ts";
import type { SqlRunner } from "../postgres-client.ts";
import { quote, type Names } from "../postgres-names.ts";
import { formatLsn, parseLsn, type Lsn } from "./pgoutput.ts";

/** What the server says of a replication slot, and of what a stream needs beside it. */
export interface SlotView {
  /** See `SERVER`. */
  readonly server: string;
  readonly walLevel: string;
  /** The log's table, as the stream names it. */
  readonly log: number;
  /** Up to where the server has its log on disk. */
  readonly flushed: Lsn;
  /** The publication of this installation brings every insert into the log, whole. */
  readonly publication: "ready" | "missing" | "changed";
  /** Undefined: there is no slot. */
  readonly slot: Slot | undefined;
}

export interface Slot {
  /** Of this database, for the plugin `pgoutput`. */
  readonly ours: boolean;
  readonly activePid: number | undefined;
  /** Undefined: another process is creating it at this moment. */
  readonly confirmed: Lsn | undefined;
  /** The server has thrown away what it would need. */
  readonly lost: boolean;
  /** Bytes of the server's log that it keeps. */
  readonly retained: number;
  /** Bytes that were written since what was confirmed. */
  readonly behind: number;
}

/** What tells a running server from any other, such as its standby that has taken over. */
export const SERVER = "extract(epoch from pg_catalog.pg_postmaster_start_time())::text";

/** Slots are named for the whole server, so the name holds all that tells relays apart. */
export function slotName(database: string, names: Names, relay: string): string {
  const scope = JSON.stringify([database, names.lockScope, relay]);
  return `txbox_${createHash("sha256").update(scope).digest("hex").slice(0, 16)}`;
}

/** One for each installation, shared by its relays. */
export function publicationName({ publication }: Names): string {
  return publication;
}

export async function databaseName(sql: SqlRunner): Promise<string> {
  const [row] = await sql.query("select pg_catalog.current_database()::text");
  return row![0]!;
}

/** "ready": it brings every insert into the log, whole. "changed": not that. Null: there is none. */
export function publicationSql(log: string, publication: string): string {
  return `(select case when p.pubinsert and p.pubviaroot and t.plain then 'ready' else 'changed' end
         from pg_catalog.pg_publication p
         left join lateral (select pg_catalog.to_jsonb(r) ->> 'prqual' is null and pg_catalog.to_jsonb(r) ->> 'prattrs' is null as plain
           from pg_catalog.pg_publication_rel r where r.prpubid = p.oid and r.prrelid = ${log}::regclass) t on true
         where p.pubname = ${publication})`;
}

/** Reads of the server's views, cheap enough for every few seconds. */
export async function lookAtSlot(sql: SqlRunner, names: Names, slot: string): Promise<SlotView> {
  const [row] = await sql.query(
    `select pg_catalog.json_build_object(
       'server', ${SERVER}, 'walLevel', pg_catalog.current_setting('wal_level'), 'log', $2::text::regclass::oid::bigint,
       'flushed', case when not pg_catalog.pg_is_in_recovery() then pg_catalog.pg_current_wal_flush_lsn() end,
       'publication', ${publicationSql("$2::text", "$3::text")},
       'slot', (select pg_catalog.json_build_object('ours', s.plugin is not distinct from 'pgoutput' and s.database is not distinct from pg_catalog.current_database(),
           'activePid', s.active_pid, 'confirmed', s.confirmed_flush_lsn, 'lost', s.wal_status is not distinct from 'lost',
           'retained', coalesce(pg_catalog.pg_current_wal_lsn() - s.restart_lsn, 0), 'behind', coalesce(pg_catalog.pg_current_wal_lsn() - s.confirmed_flush_lsn, 0))
         from pg_catalog.pg_replication_slots s where s.slot_name = $1::text))`,
    [slot, names.message, publicationName(names)],
  );
  const view = JSON.parse(row![0]!) as {
    server: string;
    walLevel: string;
    log: number;
    flushed: string | null;
    publication: "ready" | "changed" | null;
    slot: (Omit<Slot, "confirmed" | "activePid"> & { confirmed: string | null; activePid: number | null }) | null;
  };
  const { slot: found } = view;
  return {
    server: view.server,
    walLevel: view.walLevel,
    log: view.log,
    flushed: view.flushed === null ? 0n : parseLsn(view.flushed),
    publication: view.publication ?? "missing",
    slot:
      found === null
        ? undefined
        : {
            ...found,
            activePid: found.activePid ?? undefined,
            confirmed: found.confirmed === null ? undefined : parseLsn(found.confirmed),
          },
  };
}

/** False: it is in use. */
export async function dropSlot(sql: SqlRunner, slot: string): Promise<boolean> {
  try {
    await sql.query(
      `select pg_catalog.pg_drop_replication_slot(slot_name) from pg_catalog.pg_replication_slots
       where slot_name = $1::text and plugin = 'pgoutput' and database = pg_catalog.current_database()`,
      [slot],
    );
    return true;
  } catch (error) {
    const code = errorCode(error);
    // Gone already.
    if (code === "42704") return true;
    if (code === "55006") return false;
    throw error;
  }
}

/** Ends the process that reads from the slot and holds no lanes. False: this role may not end it. */
export async function endReader(sql: SqlRunner, slot: string, pid: number): Promise<boolean> {
  try {
    await sql.query(
      `select pg_catalog.pg_terminate_backend(s.active_pid) from pg_catalog.pg_replication_slots s
       where s.slot_name = $1::text and s.active_pid = $2::text::int`,
      [slot, String(pid)],
    );
    return true;
  } catch (error) {
    if (errorCode(error) === "42501") return false;
    throw error;
  }
}

/** Ends a connection that waits for the transactions of the server to end, to make a slot. */
export function endMakingSql(pid: number): string {
  return `select pg_catalog.pg_terminate_backend(a.pid) from pg_catalog.pg_stat_activity a
     where a.pid = ${pid} and a.backend_type = 'walsender'`;
}

/** What the server says of a connection that streams. */
export interface Sender {
  /** Commits of the server wait for what this connection has confirmed, as they do for a synchronous standby. */
  readonly isSynchronous: boolean;
  /** Bytes of its log that it has not sent yet. */
  readonly unsent: number;
}

/** `received`: what has arrived, for a role that may not see what was sent. Undefined: there is no such connection. */
export async function lookAtSender(
  sql: SqlRunner,
  pid: number | undefined,
  received: Lsn,
): Promise<Sender | undefined> {
  const [row] = await sql.query(
    `select coalesce(sync_state, 'async'), pg_catalog.pg_current_wal_lsn() - coalesce(sent_lsn, $2::text::pg_lsn)
     from pg_catalog.pg_stat_replication where pid = $1::text::int`,
    [String(pid ?? 0), formatLsn(received)],
  );
  return row && { isSynchronous: row[0] !== "async", unsent: Number(row[1]) };
}

/** Whether a process lives that can read the stream of this relay. */
export async function hasStreamingMember(sql: SqlRunner, names: Names, relay: string): Promise<boolean> {
  const rows = await sql.query(
    `select 1 from ${names.member} where relay = $1::text and wal and lease_until > pg_catalog.clock_timestamp() limit 1`,
    [relay],
  );
  return rows.length > 0;
}

export function createSlotCommand(slot: string, failover: boolean): string {
  return failover
    ? `CREATE_REPLICATION_SLOT ${quote(slot)} LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER)`
    : // Servers before 15 know only this form.
      `CREATE_REPLICATION_SLOT ${quote(slot)} LOGICAL pgoutput NOEXPORT_SNAPSHOT`;
}

export function dropSlotCommand(slot: string): string {
  return `DROP_REPLICATION_SLOT ${quote(slot)}`;
}

export function startCommand(slot: string, names: Names): string {
  const publication = quote(publicationName(names)).replaceAll("'", "''");
  return `START_REPLICATION SLOT ${quote(slot)} LOGICAL 0/0 (proto_version '1', publication_names '${publication}', messages 'true')`;
}
