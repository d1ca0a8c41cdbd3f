import type { Maintenance, MaintenanceReport } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import { CHANGES_MS } from "./changes.ts";
import { fillGroups } from "./dead-groups.ts";
import { BY_INDEX, PlannedTransactions } from "./planned-transactions.ts";
import { textArray } from "./postgres-client.ts";
import type { Database, SqlRunner } from "./postgres-client.ts";
import { SEGMENT_SIZE } from "./postgres-cursor.ts";
import { explain } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";
import { SAMPLES_MS } from "./postgres-history.ts";
import type { Archive } from "./segment-archive.ts";
import { ANOTHER_IS_AT_IT, Segments } from "./segments.ts";
import { createReceiptDays, dropOldReceipts } from "./receipt-days.ts";
import { dropForgottenSlots } from "./wal/wal-admin.ts";

export interface MaintenanceOptions {
  database: Database;
  sql: SqlRunner;
  names: Names;
  segmentMs: number;
  retentionMs: number;
  abandonAfterMs: number | undefined;
  receiptRetentionMs: number;
  archive: Archive | undefined;
  maxRetainedBytes: number;
}

const CHUNK = 10_000;
/** How many letters of older relays get their group in one run. */
const GROUPED = 50_000;

/** Rotates and drops segments of the log, and deletes what referred to them. */
export function createMaintenance(options: MaintenanceOptions): Maintenance {
  const { database, names } = options;
  const receipts = { database, names, retentionMs: options.receiptRetentionMs };
  return {
    async run({ signal } = {}): Promise<MaintenanceReport> {
      try {
        // First: the server keeps its log for them, whatever becomes of the rest.
        await dropForgottenSlots(options.sql, names, options.maxRetainedBytes).catch(() => undefined);
        const segments = new Segments(options, signal);
        const rotated = await segments.rotate();
        const { dropped, ...held } = await segments.dropOld();
        await deleteLeftovers(options);
        await fillGroups(new PlannedTransactions(database, names), names, GROUPED);
        await analyseNew(options);
        await createReceiptDays(receipts);
        await dropOldReceipts(receipts);
        return { rotated, droppedSegments: dropped, ...held };
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

/** Finds rows that are no longer needed by indexes, so that a table with nothing to delete is not read. */
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
    [names.sample, any(names.sample, `t.at < pg_catalog.statement_timestamp() - interval '${SAMPLES_MS} ms'`)],
    [names.change, any(names.change, `t.at < pg_catalog.statement_timestamp() - interval '${CHANGES_MS} ms'`)],
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
  "edit",
  "change",
  "batch",
  "kept_message",
  "sample",
] as const;
