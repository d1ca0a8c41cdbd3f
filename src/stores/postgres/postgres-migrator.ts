import type { MigrateOptions, Migrator, MigrationStep } from "../../core/contracts.ts";
import { describeError, errorCode, TxboxError } from "../../core/errors.ts";
import { MIGRATIONS } from "./migrations/index.ts";
import type { Migration, OnlineMigration, Piece, PlainMigration } from "./migrations/migration.ts";
import type { Database, ScriptRunner, SqlRunner } from "./postgres-client.ts";
import { literal } from "./postgres-client.ts";
import { retried, schemaMissing, schemaOutdated, schemaTooNew } from "./postgres-errors.ts";
import { renameDefaults, type Names } from "./postgres-names.ts";
import { PINNED_PATH } from "./search-path.ts";

export interface MigratorOptions {
  database: Database;
  names: Names;
  migrations?: readonly Migration[];
}

const LOCK_NOT_AVAILABLE = "55P03";
/** Another process was quicker: a code of its own, so that it differs from every other error. */
const ALREADY_DONE = "TX001";
/** How long a plain migration waits for a lock, since others queue behind it, and how often it tries. */
const LOCK_MS = 300;
const LOCK_TRIES = 200;
const PAUSE_MS = 300;
/** Runs of a piece that is repeated; only a fault could need more. */
const MAX_RUNS = 100_000;
/** Segments of a log that is not there yet. */
const FIRST_SEGMENTS = 2;

/**
 * Applies what is pending. Any number of processes may do it at once: every transaction of it takes the same lock. A new
 * schema appears as a whole; one that is in use is changed piece by piece, and a run that was killed is taken up by the
 * next.
 */
export function createMigrator({ database, names, migrations = MIGRATIONS }: MigratorOptions): Migrator {
  const newest = migrations.at(-1)?.version ?? 0;
  const lock = `select pg_advisory_xact_lock(hashtextextended(${literal(`txbox:migrate:${names.schema}`)}::text, 0));\n`;

  async function todo(runner: SqlRunner): Promise<{ found: number; pending: Migration[] }> {
    const found = await versionFound(runner, names);
    if (found > newest) throw schemaTooNew(found, newest);
    return { found, pending: migrations.filter(({ version }) => version > found) };
  }

  async function pendingSteps(): Promise<MigrationStep[]> {
    const { found, pending } = await todo(database);
    const steps: MigrationStep[] = [];
    for (const migration of pending) {
      const before = found === 0 && steps.length === 0 ? await prelude(database, names) : "";
      steps.push(stepOf(migration, `${before}${await scriptOf(migration, found)}`));
    }
    return steps;
  }

  /** To be run by hand: each transaction begins and ends by itself. */
  async function scriptOf(migration: Migration, found: number): Promise<string> {
    if ("sql" in migration) return `begin;\n${PIN}${text(migration.sql)}\n${recordOf(migration)};\ncommit;\n`;
    const parts: string[] = [];
    for (const piece of migration.pieces) {
      const runs = piece.left === undefined ? 1 : (found === 0 ? FIRST_SEGMENTS : await countPinned(piece)) + 1;
      const part = `begin;\n${FRESH}${PIN}${NO_TIMEOUTS}${lock}${text(piece.sql).trim()}\ncommit;\n`;
      parts.push(`-- ${piece.title}\n${part.repeat(runs)}`);
    }
    return `${parts.join("")}${recordOf(migration)};\n`;
  }

  function text(sql: string): string {
    return renameDefaults(sql, names);
  }

  function recordOf({ version, name }: Migration): string {
    return `insert into ${names.migration} (version, name) values (${version}, '${name}')`;
  }

  async function countLeft(runner: SqlRunner, { left }: Piece): Promise<number> {
    const [row] = await runner.query(text(left!));
    return Number(row![0]);
  }

  function countPinned(piece: Piece): Promise<number> {
    return database.transaction(async (_, sql) => {
      await sql.exec(`${PIN}${NO_TIMEOUTS}`);
      return countLeft(sql, piece);
    });
  }

  /** All of a new schema, or the plain ones that come next. */
  async function applyTogether(): Promise<MigrationStep[]> {
    return retried(() =>
      database.transaction(async (_, sql) => {
        await sql.exec(`${FRESH}${PIN}${NO_TIMEOUTS}${lock}`);
        const { found, pending } = await todo(sql);
        if (found === 0) await sql.exec(await prelude(sql, names));
        else await sql.exec(`set local lock_timeout = ${LOCK_MS}`);
        const firstOnline = found === 0 ? -1 : pending.findIndex((migration) => "pieces" in migration);
        const together = firstOnline === -1 ? pending : pending.slice(0, firstOnline);
        for (const migration of together) {
          if ("sql" in migration) await sql.exec(text(migration.sql));
          else for (const piece of migration.pieces) await runPiece(sql, piece);
          await sql.exec(recordOf(migration));
        }
        return together.map((migration) => stepOf(migration, scriptApplied(migration)));
      }),
    );
  }

  async function runPiece(sql: ScriptRunner, piece: Piece): Promise<void> {
    if (piece.left === undefined) return sql.exec(text(piece.sql));
    for (let run = 0; run < MAX_RUNS && (await countLeft(sql, piece)) > 0; run++) await sql.exec(text(piece.sql));
  }

  /**
   * Each run of a piece is one message to the server, which commits by itself at its end: no lock waits for a client that
   * was stopped or has lost its connection, and no pooler comes in between.
   */
  async function applyOnline(migration: OnlineMigration, onProgress: MigrateOptions["onProgress"]): Promise<boolean> {
    const { version, name } = migration;
    const guard = `do $txbox_do$ begin if exists (select from ${names.migration} where version >= ${version}) then
      raise exception using errcode = '${ALREADY_DONE}', message = 'txbox: another process has applied ${name}'; end if; end $txbox_do$;\n`;
    try {
      for (const piece of migration.pieces) {
        for (let run = 0; run < MAX_RUNS; run++) {
          const left = piece.left === undefined ? 1 - run : await countPinned(piece);
          if (left === 0) break;
          tell(onProgress, { version, name, title: piece.title, left });
          await retried(() => database.exec(`${FRESH}${PIN}${NO_TIMEOUTS}${lock}${guard}${text(piece.sql)}`));
        }
      }
    } catch (error) {
      if (errorCode(error) === ALREADY_DONE) return false;
      throw error;
    }
    return (await database.query(`${recordOf(migration)} on conflict do nothing returning 1`)).length > 0;
  }

  function scriptApplied(migration: Migration): string {
    return "sql" in migration ? text(migration.sql) : migration.pieces.map(({ sql }) => text(sql)).join("");
  }

  return {
    pending: pendingSteps,
    async migrate({ onProgress } = {}) {
      const applied: MigrationStep[] = [];
      for (;;) {
        // Nothing to do is the usual case when an application starts: then no lock is taken.
        const { found, pending } = await todo(database);
        const [next] = pending;
        if (next === undefined) return applied;
        try {
          if (found > 0 && "pieces" in next) {
            if (await applyOnline(next, onProgress)) applied.push(stepOf(next, scriptApplied(next)));
          } else {
            applied.push(...(await patiently(applyTogether)));
          }
        } catch (error) {
          throw TAKEN.has(errorCode(error) ?? "") ? nameTaken(names, error) : error;
        }
      }
    },
    async check() {
      const found = await versionFound(database, names);
      if (found === 0) throw schemaMissing(names.schema);
      if (found < newest) throw schemaOutdated(found, newest);
      if (found > newest) throw schemaTooNew(found, newest);
    },
  };
}

/** duplicate_table, duplicate_object, duplicate_function, and a function that gives something else. */
const TAKEN: ReadonlySet<string> = new Set(["42P07", "42710", "42723", "42P13"]);

/** Tables of the application, or of another installation: "message" with the prefix "all_" is "all_message" without. */
function nameTaken({ schema }: Names, cause: unknown): TxboxError {
  const message = `A name that txbox needs is taken in schema ${schema} (${describeError(cause)})`;
  const fix = "Give createPostgresStore a schema of its own, or another tablePrefix";
  return new TxboxError("invalid_option", message, { field: "tablePrefix", fix, cause });
}

/** A snapshot taken before the wait for the lock would not show what the previous holder did. */
const FRESH = "set transaction isolation level read committed;\n";

const PIN = `${PINNED_PATH};\n`;

/** A role may have timeouts of its own that suit its queries, and not every server knows every one of them. */
const NO_TIMEOUTS = `select set_config(name, '0', true) from pg_settings
  where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout');\n`;

function stepOf({ version, name }: Pick<PlainMigration, "version" | "name">, script: string): MigrationStep {
  return { version, name, script };
}

function tell(listener: MigrateOptions["onProgress"], progress: Parameters<NonNullable<typeof listener>>[0]): void {
  try {
    listener?.(progress);
  } catch {
    // A listener that throws must not stop a migration halfway.
  }
}

/** Tries again while a lock is taken: others queue behind every wait, so each is short. */
async function patiently<T>(run: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await run();
    } catch (error) {
      if (tries >= LOCK_TRIES || errorCode(error) !== LOCK_NOT_AVAILABLE) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * (0.5 + Math.random())));
  }
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
    const [row] = await runner.query(`select coalesce(pg_catalog.max(version), 0) from ${names.migration}`);
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
    `select 1 from (select 1 from pg_class limit 1) c where pg_catalog.${lookUp}($1::text) is not null`,
    [name],
  );
  return rows.length > 0;
}
