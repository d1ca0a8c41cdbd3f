import type { HealthCheck, Symptom } from "../../core/contracts.ts";
import { deadLetterCommands, shellWord } from "../../core/pasted.ts";
import { formatMs } from "../../core/plain-words.ts";
import { type DoctorContext, when } from "./doctor-context.ts";
import { epochMs } from "./log-message.ts";
import { SOUND } from "./postgres-cursor.ts";
import { segmentHolders } from "./segment-holders.ts";

const HOUR_MS = 3_600_000;
/** Plans over this many partitions are compiled by the server, which takes longer than running them. */
const MANY_SEGMENTS = 20;
const MANY_ATTEMPTS = 5;

/** What is wrong with the tables of txbox. */
export function logChecks(context: DoctorContext): readonly HealthCheck[] {
  const check = (name: string, looksAt: string, run: () => Promise<Symptom[]>): HealthCheck => {
    return { name, looksAt, needs: "tables", run };
  };
  return [
    check("restored_copy", "whether the transaction ids are those of this server", () => restoredCopy(context)),
    check("position_counter", "whether the counter of positions is ahead of the log", () => positionCounter(context)),
    check("retention", "segments that are past their time", () => retention(context)),
    check("maintenance", "whether the log is rotated", () => maintenance(context)),
    check("receipt_days", "partitions for the receipts of today and tomorrow", () => receiptDays(context)),
    check("stuck_keys", "keys that fail again and again, or wait for a dead letter", () => stuckKeys(context)),
    check("invalid_indexes", "indexes that cannot be used", () => invalidIndexes(context)),
    check("jit", "JIT compilation beside many segments", async () => {
      const { names } = context;
      const [row] = await context.ask(`select count(*) from ${names.segment}`);
      const [jit] = await context.options.database.query("select pg_catalog.current_setting('jit')");
      return when(jit?.[0] === "on" && Number(row?.[0]) > MANY_SEGMENTS, () => ({
        severity: "info",
        finding: `JIT is on, and the log has ${row?.[0]} segments`,
        consequence: "Queries of your own on message_status may take seconds to compile; those of txbox do not",
        fix: "set local jit = off in their transaction, or alter role … set jit = off",
      }));
    }),
  ];
}

async function restoredCopy(context: DoctorContext): Promise<Symptom[]> {
  const { names } = context;
  const cursors = await context.ask(`select distinct relay from ${names.cursor} c where not (${SOUND})`);
  // An id that this server has not reached yet was given out by another one.
  const ahead = await context.ask(
    `select xid from ${names.message} where xid > pg_snapshot_xmax(pg_current_snapshot()) order by xid desc limit 1`,
  );
  const relays = cursors.map(([relay]) => relay).join(", ");
  return when(cursors.length > 0 || ahead.length > 0, () => ({
    severity: "error",
    finding:
      cursors.length > 0
        ? `The progress of ${relays} was written by another server: this database is a restored copy`
        : `The log has transaction ids that this server has not reached (${ahead[0]?.[0]}): it is a restored copy`,
    consequence: "Relays refuse to run; a new one could skip messages",
    fix: "Make sure that the original is out of use and nothing writes here, then: txbox rebase",
  }));
}

async function positionCounter(context: DoctorContext): Promise<Symptom[]> {
  const { names } = context;
  const [row] = await context.ask(
    `select (select max(position) from ${names.message}), pg_sequence_last_value(s.seq), has_sequence_privilege(s.seq, 'select')
     from (select pg_get_serial_sequence($1::text, 'position')::regclass as seq) s`,
    [names.message],
  );
  const [highest, last, visible] = row!;
  // Without the right to look, the counter says nothing.
  const behind = highest != null && visible === "t" && BigInt(last ?? 0) < BigInt(highest);
  return when(behind, () => ({
    severity: "error",
    finding: `The counter of positions is at ${last ?? 0}, the log at ${highest}: logical replication does not copy counters`,
    consequence:
      "Every enqueue fails until the counter has passed the log, or gets a position before messages that were read",
    fix: "Make sure that nothing writes here, then: txbox rebase",
  }));
}

async function retention(context: DoctorContext): Promise<Symptom[]> {
  const { names, options } = context;
  return context.read(async (sql) => {
    const rows = await sql.query(
      `select n, ${epochMs("clock_timestamp() - closed_at")}, archive_owner is not null and archived_at is null from ${names.segment}
       where closed_at < now() - interval '${options.retentionMs + HOUR_MS} ms' order by n limit 1`,
    );
    const [oldest] = rows;
    if (oldest === undefined) return [];
    const n = oldest[0]!;
    const [there] = await sql.query("select to_regclass($1::text)", [names.of(`message_${n}`)]);
    const holders = there?.[0] == null ? [] : await segmentHolders(sql, names, n);
    const age = formatMs(Number(oldest[1]));
    if (holders.length === 0 && oldest[2] === "t") {
      return [
        {
          severity: "warning",
          finding: `Segment ${n} was closed ${age} ago, and its archive is not written`,
          consequence: "The log grows: the segment is kept until its archive is complete",
          fix: "Look at the warnings of maintenance, or at the output of txbox maintain, for why the archive fails. archive: false drops segments without one",
        },
      ];
    }
    if (holders.length === 0) {
      return [
        {
          severity: "warning",
          finding: `Segment ${n} was closed ${age} ago, nothing needs it any more, and it is still there`,
          consequence: "The log grows",
          fix: "Run relays with maintenance, or txbox maintain as the owner of the tables; a long transaction may be in the way",
        },
      ];
    }
    return [
      {
        severity: "warning",
        finding: `Segment ${n} was closed ${age} ago and is kept for ${holders.join(", ")}`,
        consequence: "The log grows for as long as that relay has not dealt with it",
        fix: `Start the relay, or txbox relays drop ${shellWord(holders[0]!)}`,
      },
    ];
  });
}

async function maintenance(context: DoctorContext): Promise<Symptom[]> {
  const { names, options } = context;
  const [row] = await context.ask(
    `select n, ${epochMs("clock_timestamp() - opened_at")} from ${names.segment}
     where opened_at is not null and closed_at is null order by n desc limit 1`,
  );
  const ageMs = Number(row?.[1] ?? 0);
  if (ageMs < 2 * options.segmentMs + HOUR_MS) return [];
  const filled = await context.ask(`select 1 from ${names.of(`message_${row![0]}`)} limit 1`);
  return when(filled.length > 0, () => ({
    severity: "warning",
    finding: `The present segment of the log is open for ${formatMs(ageMs)}: maintenance does not run`,
    consequence: "Nothing old is dropped: the log grows, and receipts get no partitions",
    fix: "Run relays with maintenance, or txbox maintain from cron as the owner of the tables",
  }));
}

async function receiptDays(context: DoctorContext): Promise<Symptom[]> {
  const { names } = context;
  const rows = await context.ask(
    `select right(c.relname, 8) from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = $1::text::regclass and not i.inhdetachpending and c.relname ~ '_[0-9]{8}$'`,
    [names.receipt],
  );
  // There are no receipts yet, and the tables were never maintained.
  if (rows.length === 0) return [];
  const wanted = await context.ask(
    "select to_char(d, 'YYYYMMDD') from generate_series((now() at time zone 'utc')::date, (now() at time zone 'utc')::date + 1, interval '1 day') d",
  );
  const there = new Set(rows.map(([day]) => day));
  const missing = wanted.map(([day]) => day!).filter((day) => !there.has(day));
  return when(missing.length > 0, () => ({
    severity: "warning",
    finding: `There is no partition for receipts of ${missing.join(" and ")}`,
    consequence: "A consumer whose role may not create tables waits with the messages of that day",
    fix: "txbox maintain as the owner of the tables, every few minutes",
  }));
}

async function stuckKeys(context: DoctorContext): Promise<Symptom[]> {
  const { names } = context;
  const failing = await context.ask(
    `select relay, stream, key, attempts, coalesce(last_error, ''), count(*) over () from ${names.blocked}
     where attempts >= ${MANY_ATTEMPTS} order by attempts desc limit 3`,
  );
  const held = await context.ask(
    `select relay, stream, coalesce(key, id), id, last_error, count(*) over () from ${names.dead}
     where state = 'dead' and blocks order by died_at limit 3`,
  );
  return [
    ...failing.map(([relay, stream, key, attempts, error, all]): Symptom => ({
      severity: "warning",
      finding: `Key ${key} of ${stream} has failed ${attempts} times at relay ${relay} (one of ${all}): ${error!.slice(0, 200)}`,
      consequence: "What follows in the key waits behind it",
      fix: "Mend the cause in the error. The relay tries again by itself; after maxAttempts it is a dead letter",
    })),
    ...held.map(([relay, stream, key, id, error, all]): Symptom => ({
      severity: "warning",
      finding: `Key ${key} of ${stream} stands still at relay ${relay} behind a dead letter (one of ${all}): ${error!.slice(0, 200)}`,
      consequence: "Nothing of this key is published until the dead letter is requeued or discarded",
      fix: deadLetterCommands(id!, relay!),
    })),
  ];
}

async function invalidIndexes(context: DoctorContext): Promise<Symptom[]> {
  const { names } = context;
  const tables = [names.message, names.dead, names.parked, names.blocked, names.batch, names.receipt];
  const rows = await context.ask(
    `select x.indexrelid::regclass::text, x.indrelid::regclass::text from pg_index x where not x.indisvalid and (
       x.indrelid in (${tables.map((_, i) => `to_regclass($${i + 1}::text)`).join(", ")})
       or x.indrelid in (select i.inhrelid from pg_inherits i where i.inhparent in (to_regclass($1::text), to_regclass($6::text))))`,
    tables,
  );
  return rows.map(([index, table]) => ({
    severity: "warning",
    finding: `Index ${index} of ${table} is invalid`,
    consequence: "It costs every write and helps no query: look-ups read whole segments",
    fix: `reindex index concurrently ${index}; or run txbox migrate again if an upgrade was interrupted`,
  }));
}
