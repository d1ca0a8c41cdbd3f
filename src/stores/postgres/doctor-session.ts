import type { HealthCheck, Symptom } from "../../core/contracts.ts";
import { describeError } from "../../core/errors.ts";
import { shellWord } from "../../core/pasted.ts";
import { clockSkew } from "../shared/clock-skew.ts";
import { type DoctorContext, when } from "./doctor-context.ts";
import { epochMs } from "./log-message.ts";
import { textArray } from "./postgres-client.ts";

/** Relays wait at least this long for an answer, and handlers may take longer. */
const SHORT_TIMEOUT_MS = 5000;
const HANDLER_MS = 30_000;

/** What is wrong with this role, its connections and its clock. */
export function sessionChecks(context: DoctorContext): readonly HealthCheck[] {
  return [
    {
      name: "clock_skew",
      looksAt: "the clock of this process against the server's",
      needs: "server",
      run: () =>
        clockSkew(async () => {
          const [row] = await context.options.database.query(`select ${epochMs("pg_catalog.clock_timestamp()")}`);
          return Number(row?.[0]);
        }),
    },
    {
      name: "pooler",
      looksAt: "a connection pooler in between, and its mode",
      needs: "server",
      run: () => pooler(context),
    },
    { name: "timeouts", looksAt: "time limits of this role", needs: "server", run: () => timeouts(context) },
    {
      name: "row_security",
      looksAt: "row-level security on the tables",
      needs: "tables",
      run: async () => {
        const { names } = context;
        const tables = [names.message, names.kept_message, names.scheduled, names.blocked, names.parked, names.dead];
        const rows = await context.ask("select t from unnest($1::text::text[]) t where row_security_active(t)", [
          textArray([...tables, names.cursor, names.lane, names.receipt]),
        ]);
        return rows.map(([table]) => ({
          severity: "error",
          finding: `Row-level security applies to ${table} for this role`,
          consequence: "Rows that it hides would be skipped: relays refuse to run with this role",
          fix: `alter table ${table} disable row level security; or alter role … bypassrls`,
        }));
      },
    },
    { name: "rights", looksAt: "what this role may do", needs: "tables", run: () => rights(context) },
  ];
}

async function pooler({ options: { database } }: DoctorContext): Promise<Symptom[]> {
  try {
    return await database.transaction(async (tx, sql) => {
      const [first] = await sql.query("select pg_catalog.pg_backend_pid()");
      const [second] = await sql.query("select pg_catalog.pg_backend_pid()");
      if (first?.[0] !== second?.[0])
        return [withoutTransactions("two statements of one transaction ran on two servers")];
      // What the driver was told when it connected: a pooler makes up a number of its own.
      const told: unknown = Reflect.get(tx, "processID");
      return when(typeof told === "number" && String(told) !== first?.[0], () => ({
        severity: "info",
        finding: "A connection pooler is between this process and the server",
        consequence:
          "Transaction mode and session mode work. A query in which a handler was given up cannot be ended on the server, and keeps its receipt locked",
        fix: "Set statement_timeout for the role of the consumers, a little longer than handlerTimeoutMs",
      }));
    });
  } catch (error) {
    return [withoutTransactions(describeError(error, 200))];
  }
}

function withoutTransactions(why: string): Symptom {
  return {
    severity: "error",
    finding: `Transactions do not work on this connection: ${why}`,
    consequence: "Nothing can be enqueued, handled or maintained",
    fix: "Set pool_mode = transaction in PgBouncer: statement mode has no transactions",
  };
}

async function timeouts(context: DoctorContext): Promise<Symptom[]> {
  const found = await context.options.database.query(
    `select name, case when unit = 's' then (setting::numeric * 1000)::text else setting end from pg_catalog.pg_settings
     where name in ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')`,
  );
  const limits = new Map(found.map(([name, ms]) => [name!, Number(ms)]));
  const short = (name: string, leastMs: number, consequence: string): Symptom[] => {
    const ms = limits.get(name) ?? 0;
    return when(ms > 0 && ms < leastMs, () => ({
      severity: "warning",
      finding: `${name} of this role is ${ms} ms`,
      consequence,
      fix: `alter role … set ${name} = '${Math.ceil(leastMs / 1000)}s'; or 0 for no limit`,
    }));
  };
  return [
    ...short(
      "statement_timeout",
      SHORT_TIMEOUT_MS,
      "Maintenance, figures and large pages are cut off, again and again",
    ),
    ...short("transaction_timeout", HANDLER_MS, "Handlers that take longer lose their transaction and are tried again"),
    ...short(
      "idle_in_transaction_session_timeout",
      SHORT_TIMEOUT_MS,
      "Handlers that wait for another service lose their transaction",
    ),
  ];
}

async function rights(context: DoctorContext): Promise<Symptom[]> {
  const { names } = context;
  const [row] = await context.ask(
    `select current_user,
       has_any_column_privilege($1::text, 'insert'),
       has_table_privilege($2::text, 'select') and has_table_privilege($2::text, 'insert'),
       has_table_privilege($1::text, 'select') and has_table_privilege($3::text, 'update'),
       pg_has_role(c.relowner, 'usage'), pg_get_userbyid(c.relowner)
     from pg_class c where c.oid = $1::text::regclass`,
    [names.message, names.receipt, names.cursor],
  );
  const [role, writes, receives, relays, maintains, owner] = row!;
  const grant = (part: string) => `txbox grants --${part} ${shellWord(role!)} prints the statements for psql`;
  if ([writes, receives, relays].every((may) => may !== "t")) {
    return [
      {
        severity: "error",
        finding: `Role ${role} may neither enqueue, nor receive, nor relay`,
        consequence: "Every use of txbox with this role fails with permission denied",
        fix: grant("writer"),
      },
    ];
  }
  const parts = [writes === "t" && "enqueue", receives === "t" && "receive", relays === "t" && "relay"].filter(Boolean);
  return when(maintains !== "t", () => ({
    severity: "info",
    finding: `Role ${role} may ${parts.join(", ")}, and does not own the tables (${owner} does)`,
    consequence:
      "Relays with this role need maintenance: false, and nothing makes the receipt partitions of coming days",
    fix: `Run txbox maintain as ${owner} every few minutes; or ${grant("maintainer")}`,
  }));
}
