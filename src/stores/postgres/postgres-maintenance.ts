import type { Maintenance, MaintenanceReport } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import { BY_INDEX, PlannedTransactions } from "./planned-transactions.ts";
import { plainArray, textArray } from "./postgres-client.ts";
import type { Database, SqlRunner } from "./postgres-client.ts";
import { SEGMENT_SIZE } from "./postgres-cursor.ts";
import { explain } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";
import { createReceiptDays, dropOldReceipts } from "./receipt-days.ts";

export interface MaintenanceOptions {
  database: Database;
  sql: SqlRunner;
  names: Names;
  segmentMs: number;
  retentionMs: number;
  abandonAfterMs: number | undefined;
  receiptRetentionMs: number;
}

const CHUNK = 10_000;
/** The segment is being detached, is detached or gone: that the schema itself is there, rotating has shown. */
const ANOTHER_IS_AT_IT: ReadonlySet<string | undefined> = new Set(["55000", "schema_missing"]);
/** Transactions younger than this are waited for before a segment is detached; with older ones, next time. */
const DETACH_PATIENCE_MS = 2000;

/** Rotates and drops segments of the log, and deletes what referred to them. */
export function createMaintenance(options: MaintenanceOptions): Maintenance {
  const { database, names } = options;
  const receipts = { database, names, retentionMs: options.receiptRetentionMs };
  return {
    async run(): Promise<MaintenanceReport> {
      try {
        const segments = new Segments(options);
        const rotated = await segments.rotate();
        const { dropped, heldBackBy } = await segments.dropOld();
        await deleteLeftovers(options);
        await analyseNew(options);
        await createReceiptDays(receipts);
        await dropOldReceipts(receipts);
        return { rotated, droppedSegments: dropped, heldBackBy };
      } catch (error) {
        throw errorCode(error) === NO_RIGHTS ? withoutRights(error) : explain(error, names.schema);
      }
    },
  };
}

const NO_RIGHTS = "42501";

function withoutRights(cause: unknown): Error {
  const fix = "Let the owner of the tables do it, and set maintenance: false (--no-maintenance) for this relay";
  return Object.assign(new Error(`Maintenance: ${(cause as Error).message}. ${fix}`, { cause }), { code: NO_RIGHTS });
}

class Segments {
  readonly #options: MaintenanceOptions;
  readonly #names: Names;

  constructor(options: MaintenanceOptions) {
    this.#options = options;
    this.#names = options.names;
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
    // Whoever drew a position before the switch still holds its lock on the log.
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

  async dropOld(): Promise<{ dropped: string[]; heldBackBy: string[] }> {
    const { sql, retentionMs, abandonAfterMs } = this.#options;
    const names = this.#names;
    const dropped: string[] = [];
    await this.#noteHorizons();
    const rows = await sql.query(
      `select s.n, coalesce(s.closed_at < pg_catalog.clock_timestamp() - $2::text::interval, false)
       from ${names.segment} s where s.closed_at < pg_catalog.clock_timestamp() - $1::text::interval
         and s.horizon <= pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
       order by s.n`,
      [`${retentionMs} ms`, `${abandonAfterMs ?? 0} ms`],
    );
    for (const [n, tooOld] of rows) {
      const abandoned = abandonAfterMs !== undefined && tooOld === "t";
      try {
        const holders = await this.#holders(n!);
        if (holders.length > 0 && !abandoned) return { dropped, heldBackBy: holders };
        if (!(await this.#drop(n!))) break;
        dropped.push(`message_${n}`);
      } catch (error) {
        if (!ANOTHER_IS_AT_IT.has(errorCode(error))) throw error;
        break;
      }
    }
    return { dropped, heldBackBy: [] };
  }

  /**
   * Those who were writing when the segment was closed have ended, or live on as prepared transactions, which get new
   * names when the server restarts. From here on their transaction ids tell: all are below the horizon.
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

  async #drop(n: string): Promise<boolean> {
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
        if (database.single) await sql.query(`alter table ${names.message} detach partition ${table}`);
        else if (!(await this.#detachConcurrently(table))) return false;
      }
      await this.#keepParked(table);
      await sql.query(`drop table ${table}`);
    }
    await sql.query(`delete from ${names.segment} where n = $1::text::bigint`, [n]);
    return true;
  }

  /** Detaching waits for every transaction that uses the log, so it is begun only when those of now have ended. */
  async #detachConcurrently(table: string): Promise<boolean> {
    const { sql } = this.#options;
    const users = `select coalesce(pg_catalog.array_agg(distinct virtualtransaction), '{}')::text from pg_locks
      where relation = $1::text::regclass::oid and pid is distinct from pg_catalog.pg_backend_pid()`;
    const [now] = await sql.query(users, [this.#names.message]);
    for (let waited = 0; ; waited += 100) {
      const left = await sql.query(
        "select 1 from pg_locks where relation = $1::text::regclass::oid and virtualtransaction = any ($2::text::text[]) limit 1",
        [this.#names.message, now![0]!],
      );
      if (left.length === 0) break;
      if (waited >= DETACH_PATIENCE_MS) return false;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    await sql.query(`alter table ${this.#names.message} detach partition ${table} concurrently`);
    return true;
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

/** Relays that have not settled everything in a segment that is there. */
export async function segmentHolders(sql: SqlRunner, names: Names, n: string): Promise<string[]> {
  const table = names.of(`message_${n}`);
  const rows = await sql.query(
    `select distinct c.relay from ${names.cursor} c where
       (select m.xid from ${table} m where m.xid >= pg_catalog.pg_snapshot_xmax(c.prev) and m.position > c.floor order by m.xid limit 1) is not null
       or exists (select 1 from pg_catalog.pg_snapshot_xip(c.prev) x where
            (select m.xid from ${table} m where m.xid >= x and m.xid <= x and m.position > c.floor order by m.xid limit 1) is not null)
     union all select '(no relay yet)' where not exists (select 1 from ${names.relay})`,
  );
  return rows.map((row) => row[0]!);
}

/** Finds what nobody needs any more by indexes, so that a table which has nothing to delete is not read. */
async function deleteLeftovers({ database, names, retentionMs }: MaintenanceOptions): Promise<void> {
  const transactions = new PlannedTransactions(database, names);
  // Not the clock itself, which could not be compared with an index.
  const retention = `pg_catalog.statement_timestamp() - interval '${retentionMs} ms'`;
  const horizon = `(select coalesce(pg_catalog.min(n), 0) * ${SEGMENT_SIZE} from ${names.segment})`;
  const parked = `exists (select 1 from ${names.parked} p where p.position = t.position)`;
  const any = (table: string, where: string) =>
    `select t.ctid as id, t.xmin as version from ${table} t where ${where} limit ${CHUNK}`;
  /** For tables whose key begins with the relay. */
  const ofEach = (table: string, where: string) =>
    `select x.* from ${names.relay} r cross join lateral (${any(table, `t.relay = r.name and ${where}`)}) x limit ${CHUNK}`;
  const leftovers: [table: string, rows: string][] = [
    [names.batch, ofEach(names.batch, `t.upto < ${horizon}`)],
    [names.delivery, ofEach(names.delivery, `t.position < ${horizon} and not ${parked}`)],
    [names.kept_message, any(names.kept_message, `not ${parked}`)],
    [names.dead, any(names.dead, `t.state <> 'dead' and t.changed_at < ${retention} and not ${parked}`)],
    [
      names.enqueued_id,
      any(
        names.enqueued_id,
        `t.enqueued_at < ${retention} and not exists (select 1 from ${names.scheduled} s where s.id = t.id)`,
      ),
    ],
    [names.member, any(names.member, "t.lease_until < pg_catalog.statement_timestamp() - interval '1 hour'")],
  ];
  for (const [table, rows] of leftovers) {
    // Only the version that was looked at: a row that was written again meanwhile may be needed again.
    const text = `with gone as (delete from ${table} t using (${rows}) x where t.ctid = x.id and t.xmin = x.version returning 1)
      select pg_catalog.count(*) from gone`;
    const deleted = async () => Number((await transactions.write(BY_LOCATION, (sql) => sql.query(text)))[0]?.[0]);
    while ((await deleted()) === CHUNK);
  }
}

/** Rows are looked for by index and deleted by where they lie: nothing is read to be joined. */
const BY_LOCATION: typeof BY_INDEX = [...BY_INDEX, ["enable_hashjoin", "off"], ["enable_mergejoin", "off"]];

/**
 * Small tables change too little for the server to analyse them by itself, and it takes a table that was never analysed
 * for a large one. A segment of the log is analysed once as soon as there is anything in it.
 */
async function analyseNew({ sql, names }: MaintenanceOptions): Promise<void> {
  const rows = await sql.query(
    `select c.oid::regclass::text from pg_class c where c.reltuples < 0::real and (c.oid = any ($1::text::regclass[]::oid[])
       or c.relpages = 0 and c.oid in (select i.inhrelid from pg_inherits i where i.inhparent = $2::text::regclass::oid and not i.inhdetachpending)
         and pg_catalog.pg_relation_size(c.oid) > 0)`,
    [textArray(ANALYSED.map((table) => names[table])), names.message],
  );
  for (const [table] of rows) {
    try {
      // Two processes need not do the same.
      await sql.query(`analyze (skip_locked) ${table}`);
    } catch (error) {
      if (!ANOTHER_IS_AT_IT.has(errorCode(error))) throw error;
    }
  }
}

const ANALYSED = [
  "segment",
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
  "kept_message",
] as const;
