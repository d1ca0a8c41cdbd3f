import { errorCode, TxboxError } from "../../core/errors.ts";
import { uuidv7Time } from "../../core/uuid.ts";
import { BY_INDEX, PlannedTransactions } from "./planned-transactions.ts";
import type { Database, SqlRunner } from "./postgres-client.ts";
import { retried } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";

export const DEFAULT_RECEIPT_RETENTION_MS: number = 14 * 24 * 60 * 60 * 1000;

/** Where receipts of ids that carry no time are kept. */
export const FOREIGN = "0001-01-01";
const DAY_MS = 24 * 60 * 60 * 1000;
const MAX_DAYS_AHEAD = 7;
const DELETE_BATCH = 5000;

export interface ReceiptDaysOptions {
  database: Database;
  names: Names;
  /** Receipts are kept this long. Older ids are refused, because a repeat could no longer be recognised. */
  retentionMs: number;
}

/** The partition of a receipt, a function of the message id alone: its UTC day, as yyyy-mm-dd. */
export function receiptDay(messageId: string): string {
  const time = uuidv7Time(messageId);
  if (time === undefined) return FOREIGN;
  // The database decides about days near the present; this only keeps dates that no database could read away from it.
  if (time > Date.now() + 365 * DAY_MS) throw receiptExpired(messageId, "lies more than a year ahead");
  return dayOf(time);
}

export function receiptExpired(what: string, why: string): TxboxError {
  return new TxboxError(
    "receipt_expired",
    `The time inside the message id (${what}) ${why}, so a repeat could not be told from a first delivery`,
    {
      field: "id",
      fix: "Look at it as a dead letter; if ids this old are normal, raise receiptRetentionMs",
    },
  );
}

/**
 * Creates the partition of a day unless it is there. A day that retention may have dropped already is refused, be it by
 * the database's clock or because another process, which keeps receipts for less long, did so. ATTACH, unlike CREATE … PARTITION OF, does not stop inserts meanwhile.
 */
export async function createReceiptDay(
  { database, names, retentionMs }: ReceiptDaysOptions,
  day: string,
): Promise<void> {
  await retried(() =>
    database.transaction(async (_, sql) => {
      await sql.query("set transaction isolation level read committed");
      await lock(sql, names);
      // Days this young are never dropped, except under a clock that was wrong for a while.
      const [row] = await sql.query(
        `select ${isDroppable("$1::text::date")}, $1::text::date > ${TODAY} + ${MAX_DAYS_AHEAD},
           $1::text::date < ${TODAY} - 1 and $1::text::date <= (select pg_catalog.max(dropped_through) from ${names.receipt_floor})`,
        [day, String(retentionMs)],
      );
      if (row?.[0] === "t") throw receiptExpired(day, "is older than the receipts are kept");
      if (row?.[2] === "t") throw receiptExpired(day, "is of a day whose receipts were dropped");
      if (row?.[1] === "t") throw receiptExpired(day, `lies more than ${MAX_DAYS_AHEAD} days ahead`);
      const partition = partitionOf(names, day);
      const attached = await sql.query(
        "select 1 from pg_inherits where inhparent = $1::text::regclass::oid and inhrelid = pg_catalog.to_regclass($2::text)::oid",
        [names.receipt, partition],
      );
      if (attached.length > 0) return;
      await sql.query(
        `create table if not exists ${partition} (like ${names.receipt} including defaults including constraints)`,
      );
      await sql.query(
        `alter table ${names.receipt} attach partition ${partition} for values from ('${day}') to ('${dayOf(Date.parse(day) + DAY_MS)}')`,
      );
    }),
  );
}

/**
 * Makes the partitions from yesterday to the day after tomorrow, so that no delivery has to make one. Gives the days
 * that were missing.
 */
export async function createReceiptDays(options: ReceiptDaysOptions): Promise<string[]> {
  const { database, names } = options;
  const days = await database.query(
    // Not by a cast to text, which has the form of DateStyle.
    `select pg_catalog.to_char(d, 'YYYY-MM-DD') from pg_catalog.generate_series(${TODAY} - 1, ${TODAY} + 2, interval '1 day') d`,
  );
  const attached = (await partitions(database, names)).filter(({ state }) => state === "attached");
  const present = new Set(attached.map(({ day }) => day));
  const missing = days.map(([day]) => String(day)).filter((day) => !present.has(day));
  for (const day of missing) await createReceiptDay(options, day);
  return missing;
}

/** Drops the days beyond retention without stopping inserts, and deletes old receipts of foreign ids; the dropped days. */
export async function dropOldReceipts(options: ReceiptDaysOptions): Promise<string[]> {
  const { database, names, retentionMs } = options;
  const dropped: string[] = [];
  for (const partition of await partitions(database, names)) {
    const [row] = await database.query(`select ${isDroppable("$1::text::date")}`, [partition.day, String(retentionMs)]);
    if (row?.[0] !== "t") continue;
    try {
      await dropDay(options, partition);
      dropped.push(partition.day);
    } catch (error) {
      // Another process is at it.
      if (!RACED.has(errorCode(error) ?? "")) throw error;
    }
  }
  await deleteForeign(database, names, retentionMs);
  return dropped;
}

/** undefined_table, object_not_in_prerequisite_state, wrong_object_type. */
const RACED: ReadonlySet<string> = new Set(["42P01", "55000", "42809"]);

async function dropDay({ database, names }: ReceiptDaysOptions, { day, state }: Partition): Promise<void> {
  const table = partitionOf(names, day);
  await retried(() => database.transaction((_, sql) => raiseFloor(sql, names, day)));
  if (state !== "detached") {
    // A single connection has no concurrent work, and an interrupted detach can only be finalised.
    const how = state === "detaching" ? "finalize" : database.single ? "" : "concurrently";
    await database.query(`alter table ${names.receipt} detach partition ${table} ${how}`);
  }
  await database.query(`drop table ${table}`);
}

/** Before the day goes, and never while another process checks whether the day may be created. */
async function raiseFloor(sql: SqlRunner, names: Names, day: string): Promise<void> {
  await sql.query("set transaction isolation level read committed");
  await lock(sql, names);
  await sql.query(
    `insert into ${names.receipt_floor} as f (dropped_through) values ($1::text::date)
     on conflict (one) do update set dropped_through = excluded.dropped_through where f.dropped_through < excluded.dropped_through`,
    [day],
  );
}

async function deleteForeign(database: Database, names: Names, retentionMs: number): Promise<void> {
  const table = names.of("receipt_foreign");
  const transactions = new PlannedTransactions(database, names);
  for (;;) {
    // By the index over their times: without statistics the server would read all receipts instead.
    const rows = await transactions.write(BY_INDEX, (sql) =>
      sql.query(
        `with old as (
           delete from ${table} where ctid = any (array(
             select ctid from ${table} where received_at < pg_catalog.now() - $1::text::float8 * interval '1 ms' limit ${DELETE_BATCH} for update skip locked))
           returning 1)
         select pg_catalog.count(*) from old`,
        [String(retentionMs)],
      ),
    );
    if (Number(rows[0]?.[0]) < DELETE_BATCH) return;
  }
}

const TODAY = "(pg_catalog.now() at time zone 'utc')::date";

/** True when the youngest id of the day is beyond retention; the second parameter is the retention in ms. */
export function isDroppable(day: string): string {
  return `(${day} + 1)::timestamp <= (pg_catalog.now() at time zone 'utc') - $2::text::float8 * interval '1 ms'`;
}

interface Partition {
  day: string;
  /** A process that was stopped between detaching and dropping leaves a detached one behind. */
  state: "attached" | "detaching" | "detached";
}

async function partitions(database: Database, names: Names): Promise<Partition[]> {
  const rows = await database.query(
    `select pg_catalog.right(c.relname, 8), case when i.inhrelid is null then 'detached' when i.inhdetachpending then 'detaching' else 'attached' end
     from pg_class p
     join pg_class c on c.relnamespace = p.relnamespace and c.relkind = 'r' and pg_catalog.starts_with(c.relname, p.relname::text || '_')
       and pg_catalog.substr(c.relname, pg_catalog.length(p.relname) + 2) ~ '^[0-9]{8}$'
     left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = p.oid
     where p.oid = $1::text::regclass::oid order by 1`,
    [names.receipt],
  );
  return rows.map(([digits, state]) => ({
    day: String(digits).replace(/(....)(..)(..)/, "$1-$2-$3"),
    state: state as Partition["state"],
  }));
}

async function lock(sql: SqlRunner, names: Names): Promise<void> {
  await sql.query("select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1::text, 0))", [
    `${names.lockScope}:receipt`,
  ]);
}

function partitionOf(names: Names, day: string): string {
  return names.of(`receipt_${day.replaceAll("-", "")}`);
}

let lastDay = { number: Number.NaN, text: "" };

function dayOf(time: number): string {
  const number = Math.floor(time / DAY_MS);
  // Nearly every message is of the same day as the one before.
  if (number !== lastDay.number) lastDay = { number, text: new Date(time).toISOString().slice(0, 10) };
  return lastDay.text;
}
