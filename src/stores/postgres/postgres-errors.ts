import { errorCode, TxboxError } from "../../core/errors.ts";
import { answeredWithin } from "../shared/answer-deadline.ts";
import { isSerializationFailure, PASSING, sqlState } from "./classify-error.ts";
import type { CopyRunner } from "./postgres-client.ts";

const MIGRATE = "Run `txbox migrate`, or `await store.migrator.migrate()`";

export function schemaMissing(schema: string, cause?: unknown): TxboxError {
  return new TxboxError("schema_missing", `The txbox tables are not in schema ${schema}`, { fix: MIGRATE, cause });
}

export function schemaOutdated(found: number, wanted: number): TxboxError {
  return new TxboxError("schema_outdated", `The txbox schema is at version ${found}, this code needs ${wanted}`, {
    fix: MIGRATE,
  });
}

export function schemaTooNew(found: number, known: number): TxboxError {
  return new TxboxError(
    "schema_too_new",
    `The txbox schema is at version ${found}, this code knows ${known} and would harm it`,
    {
      fix: "Upgrade the txbox package of this process",
    },
  );
}

const UNDEFINED_TABLE = "42P01";
const INVALID_SCHEMA = "3F000";

const INSUFFICIENT_PRIVILEGE = "42501";

export function rowSecurity(what: string, cause?: unknown): TxboxError {
  return new TxboxError("row_security", `Row-level security may hide rows of ${what} from this role`, {
    fix: "Let the role bypass it (alter role … bypassrls), or disable row-level security on the tables of txbox",
    cause,
  });
}

/** Says what is missing when the database answers "no such table", and which rows it would have hidden. */
export function explain(error: unknown, schema: string): unknown {
  const code = errorCode(error);
  if (code === INSUFFICIENT_PRIVILEGE && error instanceof Error) {
    const [, table] = /row-level security policy for table "(.*)"/.exec(error.message) ?? [];
    if (table !== undefined) return rowSecurity(table, error);
  }
  return code === UNDEFINED_TABLE || code === INVALID_SCHEMA ? schemaMissing(schema, error) : error;
}

/** Runs again what the database gave up for the sake of another transaction. */
export async function retried<T>(run: () => Promise<T>, tries = 5): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await run();
    } catch (error) {
      if (attempt >= tries || !isSerializationFailure(error)) throw error;
    }
  }
}

/** A runner for statements that commit by themselves: retries serialisation failures, explains a missing schema. */
export function sturdy(runner: CopyRunner, schema: string): CopyRunner {
  const explained = async <T>(run: () => Promise<T>): Promise<T> => {
    try {
      return await run();
    } catch (error) {
      throw explain(error, schema);
    }
  };
  return {
    query: (text, params) => explained(() => retried(() => runner.query(text, params))),
    // A retry would bring rows twice.
    copy: (text, onRow, signal) => explained(() => runner.copy(text, onRow, signal)),
  };
}

/** Whether the same statement may succeed later: the database is away or out of room, and did not refuse it. */
export function isPassing(error: unknown): boolean {
  if (error instanceof TxboxError) return error.retryable;
  const code = sqlState(error);
  return code === undefined || PASSING.test(code);
}

const QUERY_CANCELED = "57014";

/** The server gave the statement up, as it does after `statement_timeout`. */
export function isCancelled(error: unknown): boolean {
  return sqlState(error) === QUERY_CANCELED;
}

/** No statement waits for its answer longer than this. */
export function withDeadline(runner: CopyRunner, deadlineMs: number): CopyRunner {
  return {
    query: (text, params) => answeredWithin(runner.query(text, params), deadlineMs),
    async copy(text, onRow) {
      const late = new AbortController();
      try {
        return await answeredWithin(runner.copy(text, onRow, late.signal), deadlineMs);
      } catch (error) {
        late.abort(error);
        throw error;
      }
    },
  };
}
