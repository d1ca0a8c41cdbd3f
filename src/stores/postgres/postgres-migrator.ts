import type { Migrator, MigrationStep } from "../../core/contracts.ts";
import { describeError, errorCode, TxboxError } from "../../core/errors.ts";
import { MIGRATIONS } from "./migrations/index.ts";
import type { Migration } from "./migrations/migration.ts";
import type { Database, SqlRunner } from "./postgres-client.ts";
import { retried, schemaMissing, schemaOutdated, schemaTooNew } from "./postgres-errors.ts";
import { renameDefaults, type Names } from "./postgres-names.ts";

export interface MigratorOptions {
  database: Database;
  names: Names;
  migrations?: readonly Migration[];
}

/** Applies what is pending in one transaction under a lock: any number of processes may do it at once. */
export function createMigrator({ database, names, migrations = MIGRATIONS }: MigratorOptions): Migrator {
  const known = migrations.map((migration) => stepOf(migration, names));
  const newest = known.at(-1)?.version ?? 0;

  async function pendingOf(runner: SqlRunner): Promise<MigrationStep[]> {
    const found = await versionFound(runner, names);
    if (found > newest) throw schemaTooNew(found, newest);
    const pending = known.filter(({ version }) => version > found);
    const [first, ...rest] = pending;
    if (first === undefined || found > 0) return pending;
    return [{ ...first, script: `${await prelude(runner, names)}${first.script}` }, ...rest];
  }

  return {
    pending: () => pendingOf(database),
    async migrate() {
      // Nothing to do is the usual case when an application starts: then no lock is taken.
      if ((await pendingOf(database)).length === 0) return [];
      return retried(() =>
        database.transaction(async (_, sql) => {
          // A snapshot taken before the wait for the lock would not show what the previous holder did.
          await sql.query("set transaction isolation level read committed");
          await sql.query("select pg_advisory_xact_lock(hashtextextended($1::text, 0))", [
            `txbox:migrate:${names.schema}`,
          ]);
          const pending = await pendingOf(sql);
          for (const step of pending) await sql.exec(step.script);
          return pending;
        }),
      ).catch((error: unknown) => {
        throw TAKEN.has(errorCode(error) ?? "") ? nameTaken(names, error) : error;
      });
    },
    async check() {
      const found = await versionFound(database, names);
      if (found === 0) throw schemaMissing(names.schema);
      if (found < newest) throw schemaOutdated(found, newest);
      if (found > newest) throw schemaTooNew(found, newest);
    },
  };
}

/** duplicate_table, duplicate_object, duplicate_function. */
const TAKEN: ReadonlySet<string> = new Set(["42P07", "42710", "42723"]);

/** Tables of the application, or of another installation: "message" with the prefix "all_" is "all_message" without. */
function nameTaken({ schema }: Names, cause: unknown): TxboxError {
  const message = `A name that txbox needs is taken in schema ${schema} (${describeError(cause)})`;
  const fix = "Give createPostgresStore a schema of its own, or another tablePrefix";
  return new TxboxError("invalid_option", message, { field: "tablePrefix", fix, cause });
}

/** Each step records itself, so that its SQL is complete for those who run it by hand. */
function stepOf({ version, name, sql }: Migration, names: Names): MigrationStep {
  const record = `insert into ${names.migration} (version, name) values (${version}, '${name}');\n`;
  return { version, name, script: `${renameDefaults(sql, names)}\n${record}` };
}

/** CREATE SCHEMA IF NOT EXISTS asks for a right on the database even where the schema exists. */
async function prelude(runner: SqlRunner, names: Names): Promise<string> {
  const exists = await isThere(runner, "to_regnamespace", names.schema);
  const schema = exists ? "" : `create schema ${names.schema};\n`;
  return `${schema}create table if not exists ${names.migration} (
  version integer primary key,
  name text not null,
  applied_at timestamptz not null default now()
);
`;
}

const UNDEFINED_TABLE = "42P01";
const INVALID_SCHEMA = "3F000";

async function versionFound(runner: SqlRunner, names: Names): Promise<number> {
  // Asked of the catalog first, because a failed statement would end the transaction this may run in.
  if (!(await isThere(runner, "to_regclass", names.migration))) return 0;
  try {
    const [row] = await runner.query(`select coalesce(max(version), 0) from ${names.migration}`);
    return Number(row?.[0] ?? 0);
  } catch (error) {
    const code = errorCode(error);
    if (code === UNDEFINED_TABLE || code === INVALID_SCHEMA) return 0;
    throw error;
  }
}

/**
 * Reads a row of pg_class on the way, because that makes the server take note of what others created while this
 * transaction waited for the lock; to_regclass alone answers from a cache.
 */
async function isThere(runner: SqlRunner, lookUp: "to_regclass" | "to_regnamespace", name: string): Promise<boolean> {
  const rows = await runner.query(
    `select 1 from (select 1 from pg_class limit 1) c where ${lookUp}($1::text) is not null`,
    [name],
  );
  return rows.length > 0;
}
