import type { HealthCheck, Symptom } from "../../core/contracts.ts";
import { sqlText } from "../../core/pasted.ts";
import { formatMs } from "../../core/plain-words.ts";
import { type DoctorContext, when } from "./doctor-context.ts";
import { epochMs } from "./log-message.ts";

const LONG_MS = 30_000;
const VERY_LONG_MS = 3_600_000;
const GIB = 2 ** 30;
/** Of sessions of other roles a role without pg_read_all_stats sees neither what they are nor since when. */
const OF_CLIENTS =
  "(backend_type = 'client backend' or (backend_type is null and usename is not null and datname is not null))";

/** What is wrong with the server, whatever is in it. */
export function serverChecks(context: DoctorContext): readonly HealthCheck[] {
  const check = (name: string, looksAt: string, run: () => Promise<Symptom[]>): HealthCheck => {
    return { name, looksAt, needs: "server", run };
  };
  return [
    check("standby", "whether the server is a standby", async () => {
      const [row] = await context.ask("select pg_is_in_recovery()");
      return when(row?.[0] === "t", () => ({
        severity: "error",
        finding: "This server is a standby",
        consequence: "Relays and inboxes refuse it; look-ups work",
        fix: "Point the URL at the primary, for example with target_session_attrs=read-write",
      }));
    }),
    check("long_transactions", "transactions that have been open for half a minute", () => longTransactions(context)),
    check("prepared_transactions", "prepared transactions that were neither committed nor rolled back", async () => {
      const rows = await context.ask(
        `select gid, ${epochMs("clock_timestamp() - prepared")} from pg_prepared_xacts
         where database = current_database() and prepared < now() - interval '${LONG_MS} ms' order by prepared limit 5`,
      );
      return rows.map(([gid, ms]) => ({
        severity: Number(ms) > VERY_LONG_MS ? "error" : "warning",
        finding: `The prepared transaction ${gid} is open for ${formatMs(Number(ms))}`,
        consequence: "Messages in it wait. Vacuum and the dropping of old segments are held back on the whole server",
        fix: `If its coordinator is gone: rollback prepared ${sqlText(gid!)}; or commit prepared ${sqlText(gid!)};`,
      }));
    }),
    check("replication_slots", "replication slots that hold back the server", () => replicationSlots(context)),
    check("vacuum", "whether old row versions can go", () => vacuum(context)),
    check("durability", "settings that may lose commits", () => durability(context)),
    check("connections", "whether connections run out", async () => {
      const [row] = await context.ask(
        `select count(*), current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
         from pg_stat_activity where ${OF_CLIENTS}`,
      );
      const [used, most] = [Number(row?.[0]), Number(row?.[1])];
      return when(used >= 0.9 * most, () => ({
        severity: "warning",
        finding: `${used} of ${most} connections are in use`,
        consequence: "The next process gets none: relays cannot renew leases, writers fail",
        fix: "Put PgBouncer in transaction mode in front, make pools smaller, or raise max_connections",
      }));
    }),
  ];
}

/** Of a query only its kind is shown: the rest of its text may hold confidential values. */
async function longTransactions(context: DoctorContext): Promise<Symptom[]> {
  const rows = await context.ask(
    `select pid, coalesce(usename, ''), coalesce(state, ''), ${epochMs("clock_timestamp() - xact_start")}, coalesce(upper(substring(query from '^\\s*([a-zA-Z]+)')), '')
     from pg_stat_activity
     where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
       and xact_start < now() - interval '${LONG_MS} ms' order by xact_start limit 5`,
  );
  const [hidden] = await context.ask(
    `select count(*) from pg_stat_activity where datname = current_database() and ${OF_CLIENTS} and query = '<insufficient privilege>'`,
  );
  return [
    ...rows.map(([pid, user, state, ms, command]): Symptom => ({
      severity: Number(ms) > VERY_LONG_MS ? "error" : "warning",
      finding: `A transaction of ${user} (pid ${pid}, ${state}) is open for ${formatMs(Number(ms))}${command === "" ? "" : `; its last command: ${command}`}`,
      consequence: "Messages in it wait until it commits. Vacuum and the dropping of old segments are held back",
      fix: `End it: select pg_terminate_backend(${pid}); and set idle_in_transaction_session_timeout for its role`,
    })),
    ...when(rows.length === 0 && hidden?.[0] !== "0", () => ({
      severity: "info",
      finding: `${hidden?.[0]} sessions of other roles are hidden from this one`,
      consequence: "Long transactions among them are not seen",
      fix: "grant pg_read_all_stats to the role of the doctor",
    })),
  ];
}

async function replicationSlots(context: DoctorContext): Promise<Symptom[]> {
  const rows = await context.ask(
    `select slot_name, active, coalesce(wal_status, ''),
       coalesce(pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end, restart_lsn), 0)
     from pg_replication_slots order by 4 desc`,
  );
  return rows.flatMap(([name, active, status, bytes]): Symptom[] => {
    const kept = Number(bytes);
    const lost = status === "lost" || status === "unreserved";
    if (active === "t" && kept < GIB && !lost) return [];
    return [
      {
        severity: lost || kept >= GIB ? "error" : "warning",
        finding: `Replication slot ${name} ${active === "t" ? "is behind" : "has no reader"} and holds ${Math.round(kept / 2 ** 20)} MiB of WAL${lost ? ` (${status})` : ""}`,
        consequence: lost
          ? "Its reader can no longer catch up"
          : "WAL is kept for it until the disk is full, and it may hold back vacuum",
        fix: `Start its reader. If there is none any more: select pg_drop_replication_slot(${sqlText(name!)}); set max_slot_wal_keep_size as a limit`,
      },
    ];
  });
}

async function vacuum(context: DoctorContext): Promise<Symptom[]> {
  const settings = await context.settings("autovacuum", "track_counts");
  const off = [...settings].filter(([, value]) => value === "off").map(([name]) => name);
  const { names } = context;
  // Tables that are written to all the time and stay small: thousands of dead rows mean that vacuum does not get at them.
  const tables = [names.cursor, names.member, names.blocked, names.parked];
  const starved = await context.ask(
    `select relid::regclass::text, n_dead_tup, n_live_tup from pg_stat_all_tables
     where relid in (${tables.map((_, i) => `to_regclass($${i + 1}::text)`).join(", ")}) and n_dead_tup > 10000 and n_dead_tup > 10 * n_live_tup`,
    tables,
  );
  return [
    ...off.map((name): Symptom => ({
      severity: "error",
      finding: `${name} is off`,
      consequence: "Tables grow without end, and the server stops itself when transaction ids run out",
      fix: `alter system set ${name} = on; select pg_reload_conf();`,
    })),
    ...starved.map(([table, dead, live]): Symptom => ({
      severity: "warning",
      finding: `${table} has ${dead} dead rows beside ${live}`,
      consequence: "Every settle reads past them: relays get slower by the minute",
      fix: `End what holds vacuum back (long and prepared transactions, slots), then: vacuum ${table}`,
    })),
  ];
}

async function durability(context: DoctorContext): Promise<Symptom[]> {
  const settings = await context.settings("fsync", "full_page_writes", "synchronous_commit");
  const unsafe = ["fsync", "full_page_writes"].filter((name) => settings.get(name) === "off");
  return [
    ...unsafe.map((name): Symptom => ({
      severity: "error",
      finding: `${name} is off`,
      consequence: "After a crash of the machine the database may be damaged: messages are lost, published ones undone",
      fix: `alter system set ${name} = on; and restart the server`,
    })),
    ...when(settings.get("synchronous_commit") === "off", () => ({
      severity: "warning",
      finding: "synchronous_commit is off for this role",
      consequence:
        "A crash may take back transactions of the last moments, with their messages. What was published is never among them",
      fix: "alter role … set synchronous_commit = on, unless losing the last commits is fine",
    })),
  ];
}
