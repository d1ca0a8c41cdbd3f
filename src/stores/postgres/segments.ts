import type { MaintenanceReport } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import { plainArray } from "./postgres-client.ts";
import type { SqlRunner } from "./postgres-client.ts";
import { SEGMENT_SIZE } from "./postgres-cursor.ts";
import type { MaintenanceOptions } from "./postgres-maintenance.ts";
import type { Names } from "./postgres-names.ts";
import { archiveFailure, notArchived, SegmentArchive } from "./segment-archive.ts";
import { isDueSql, segmentHolders } from "./segment-holders.ts";

/** The segment is being detached, is detached or gone: that the schema itself is there, rotating has shown. */
export const ANOTHER_IS_AT_IT: ReadonlySet<string | undefined> = new Set(["55000", "schema_missing"]);
/** Transactions younger than this are waited for before a segment is detached; with older ones, next time. */
const DETACH_PATIENCE_MS = 2000;

/** What old segments are kept for. */
type Held = Pick<MaintenanceReport, "heldBackBy" | "archiveError">;

const heldByArchive = (archiveError: string): Held => ({ heldBackBy: ["(archive)"], archiveError });

/** Rotates the log, and drops old segments once every relay is past them and they are archived. */
export class Segments {
  readonly #options: MaintenanceOptions;
  readonly #names: Names;
  readonly #archive: SegmentArchive | undefined;
  readonly #signal: AbortSignal | undefined;

  constructor(options: MaintenanceOptions, signal: AbortSignal | undefined) {
    const { archive } = options;
    this.#options = options;
    this.#names = options.names;
    this.#archive =
      archive === undefined || archive === false ? undefined : new SegmentArchive({ ...options, archive });
    this.#signal = signal;
  }

  /** Writers go on in the next segment once this one is old enough and holds anything; the one after is made ready. */
  async rotate(): Promise<boolean> {
    const { database, segmentMs } = this.#options;
    const names = this.#names;
    const rotated = await database.transaction(async (_, sql) => {
      await sql.query(
        "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1::text || ':segments', 0))",
        [names.lockScope],
      );
      const [current] = await sql.query(
        `select n, coalesce(opened_at < pg_catalog.clock_timestamp() - $1::text::interval, false) from ${names.segment}
         where opened_at is not null order by n desc limit 1`,
        [`${segmentMs} ms`],
      );
      const n = BigInt(current![0]!);
      await this.#createSegment(sql, n + 1n);
      const filled = await sql.query(`select 1 from ${names.of(`message_${n}`)} limit 1`);
      if (current![1] !== "t" || filled.length === 0) return false;
      // Sequences do not roll back: after a rotation that was interrupted here, writers are in the next segment already.
      await sql.query(
        `select pg_catalog.setval(s.seq, $2::text::bigint) from (select pg_catalog.pg_get_serial_sequence($1::text, 'position')::regclass as seq) s
         where coalesce(pg_catalog.pg_sequence_last_value(s.seq), 0) < $2::text::bigint`,
        [names.message, String((n + 1n) * SEGMENT_SIZE - 1n)],
      );
      await sql.query(
        `update ${names.segment} set opened_at = pg_catalog.clock_timestamp() where n = $1::text::bigint`,
        [String(n + 1n)],
      );
      await this.#createSegment(sql, n + 2n);
      return true;
    });
    // A transaction that drew a position before the switch still holds its lock on the log.
    await this.#options.sql.query(
      `update ${names.segment} s set closed_at = pg_catalog.clock_timestamp(), writers = coalesce((
         select pg_catalog.array_agg(distinct l.virtualtransaction) from pg_locks l
         where l.locktype = 'relation' and l.relation = $1::text::regclass::oid
           and l.database = (select oid from pg_database where datname = pg_catalog.current_database())
           and l.pid is distinct from pg_catalog.pg_backend_pid()), '{}')
       where s.closed_at is null and s.opened_at is not null
         and exists (select 1 from ${names.segment} later where later.n > s.n and later.opened_at is not null)`,
      [names.message],
    );
    return rotated;
  }

  /** Attached rather than created in place: PARTITION OF would queue behind open enqueues and block later ones. */
  async #createSegment(sql: SqlRunner, n: bigint): Promise<void> {
    const names = this.#names;
    const known = await sql.query(`select 1 from ${names.segment} where n = $1::text::bigint`, [String(n)]);
    if (known.length > 0) return;
    const table = names.of(`message_${n}`);
    const [from, to] = [n * SEGMENT_SIZE, (n + 1n) * SEGMENT_SIZE];
    await sql.query(
      `create table ${table} (like ${names.message} including defaults including constraints including indexes)`,
    );
    await sql.query(`alter table ${names.message} attach partition ${table} for values from (${from}) to (${to})`);
    await sql.query(`insert into ${names.segment} (n) values (${n})`);
  }

  async dropOld(): Promise<{ dropped: string[] } & Held> {
    const { sql, retentionMs, abandonAfterMs } = this.#options;
    const names = this.#names;
    const dropped: string[] = [];
    await this.#archive?.claimAll();
    await this.#noteHorizons();
    const rows = await sql.query(
      `select s.n, coalesce(s.closed_at < pg_catalog.clock_timestamp() - $2::text::interval, false),
         s.archive_owner is not null and s.archived_at is null
       from ${names.segment} s where ${isDueSql("$1::text::interval")} order by s.n`,
      [`${retentionMs} ms`, `${abandonAfterMs ?? 0} ms`],
    );
    for (const [n, tooOld, wanted] of rows) {
      if (this.#signal?.aborted === true) break;
      const abandoned = abandonAfterMs !== undefined && tooOld === "t";
      try {
        const holders = await this.#holders(n!);
        if (holders.length > 0 && !abandoned) return { dropped, heldBackBy: holders };
        const unarchived = await this.#archived(n!, wanted === "t");
        if (unarchived === "another") break;
        if (unarchived !== undefined) return { dropped, ...heldByArchive(unarchived) };
        // Writing takes its time, in which a relay may have been rewound.
        const later = this.#archive === undefined || abandoned ? [] : await this.#holders(n!);
        if (later.length > 0) return { dropped, heldBackBy: later };
        const ended = await this.#drop(n!);
        if (ended === "unarchived") return { dropped, ...heldByArchive(notArchived(n!)) };
        if (ended === "busy") break;
        dropped.push(`message_${n}`);
      } catch (error) {
        if (!ANOTHER_IS_AT_IT.has(errorCode(error))) throw error;
        break;
      }
    }
    return { dropped, heldBackBy: [] };
  }

  /** Undefined once the segment may go; else why it may not, or that another process writes its archive. */
  async #archived(n: string, wanted: boolean): Promise<string | undefined> {
    if (this.#archive === undefined) return wanted && this.#options.archive !== false ? notArchived(n) : undefined;
    // Detached or gone: it was archived before that.
    if (!(await this.#exists(n))) return undefined;
    try {
      return (await this.#archive.write(n, this.#signal)) ? undefined : "another";
    } catch (error) {
      return archiveFailure(n, error);
    }
  }

  /**
   * Transactions that were writing when the segment was closed have ended, or go on as prepared transactions, which get
   * new names when the server restarts. From here on their transaction ids tell: all are below the horizon.
   */
  async #noteHorizons(): Promise<void> {
    const { sql } = this.#options;
    const names = this.#names;
    const quiet = await sql.query(
      `select s.n from ${names.segment} s where s.closed_at is not null and s.horizon is null
         and not exists (select 1 from pg_locks l where l.virtualtransaction = any (s.writers) and l.relation = $1::text::regclass::oid)`,
      [names.message],
    );
    if (quiet.length === 0) return;
    // A statement of its own: its snapshot must be later than the look at the locks.
    await sql.query(
      `update ${names.segment} set horizon = pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())
       where horizon is null and n = any ($1::text::bigint[])`,
      [plainArray(quiet.map(([n]) => n!))],
    );
  }

  async #exists(n: string): Promise<boolean> {
    const [row] = await this.#options.sql.query("select pg_catalog.to_regclass($1::text)", [
      this.#names.of(`message_${n}`),
    ]);
    return row![0] !== null;
  }

  /** Relays that have not settled everything in a segment. */
  async #holders(n: string): Promise<string[]> {
    return (await this.#exists(n)) ? segmentHolders(this.#options.sql, this.#names, n) : [];
  }

  /** Another process may have begun to archive since the segments were listed. */
  async #isWanted(n: string): Promise<boolean> {
    if (this.#options.archive !== undefined) return false;
    const rows = await this.#options.sql.query(
      `select 1 from ${this.#names.segment} where n = $1::text::bigint and archive_owner is not null and archived_at is null`,
      [n],
    );
    return rows.length > 0;
  }

  async #drop(n: string): Promise<"dropped" | "busy" | "unarchived"> {
    const { sql, database } = this.#options;
    const names = this.#names;
    const table = names.of(`message_${n}`);
    const [state] = await sql.query(
      `select pg_catalog.to_regclass($1::text), (select inhdetachpending from pg_inherits
         where inhrelid = pg_catalog.to_regclass($1::text)::oid and inhparent = $2::text::regclass::oid)`,
      [table, names.message],
    );
    if (state![0] !== null) {
      await this.#keepParked(table);
      if (state![1] === "t") {
        await sql.query(`alter table ${names.message} detach partition ${table} finalize`);
      } else if (state![1] === "f") {
        if (!database.single && !(await this.#usersEnded())) return "busy";
        if (await this.#isWanted(n)) return "unarchived";
        const concurrently = database.single ? "" : "concurrently";
        await sql.query(`alter table ${names.message} detach partition ${table} ${concurrently}`);
      }
      await this.#keepParked(table);
      await sql.query(`drop table ${table}`);
    }
    await sql.query(`delete from ${names.segment} where n = $1::text::bigint`, [n]);
    return "dropped";
  }

  /** Detaching waits for every transaction that uses the log, so it begins only when the present ones have ended. */
  async #usersEnded(): Promise<boolean> {
    const { sql } = this.#options;
    const users = `select coalesce(pg_catalog.array_agg(distinct virtualtransaction), '{}')::text from pg_locks
      where relation = $1::text::regclass::oid and pid is distinct from pg_catalog.pg_backend_pid()`;
    const [now] = await sql.query(users, [this.#names.message]);
    for (let waited = 0; ; waited += 100) {
      const left = await sql.query(
        "select 1 from pg_locks where relation = $1::text::regclass::oid and virtualtransaction = any ($2::text::text[]) limit 1",
        [this.#names.message, now![0]!],
      );
      if (left.length === 0) return true;
      if (waited >= DETACH_PATIENCE_MS) return false;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  /** Copies messages that still wait behind a failed one: they outlive their segment. */
  async #keepParked(table: string): Promise<void> {
    const names = this.#names;
    await this.#options.sql.query(
      `insert into ${names.kept_message} select m.* from (select distinct position from ${names.parked}) p
       join ${table} m on m.position = p.position on conflict do nothing`,
    );
  }
}
