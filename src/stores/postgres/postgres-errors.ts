import type { StoreFailure } from "../../core/contracts.ts";
import { errorCode, TxboxError } from "../../core/errors.ts";
import { answeredWithin } from "../shared/answer-deadline.ts";
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

/** Says what is missing when the database answers "no such table". */
export function explain(error: unknown, schema: string): unknown {
  const code = errorCode(error);
  return code === UNDEFINED_TABLE || code === INVALID_SCHEMA ? schemaMissing(schema, error) : error;
}

const RETRIED = new Set(["40001", "40P01"]);

export function isSerializationFailure(error: unknown): boolean {
  return RETRIED.has(errorCode(error) ?? "");
}

const CONNECTION_LOSS = /^(?:08...|57P0.|CONNECTION_.*|CONNECT_TIMEOUT|ECONN.*|EPIPE|ETIMEDOUT)$/;

/** The connection is gone or about to be. */
export function isConnectionLoss(error: unknown): boolean {
  return CONNECTION_LOSS.test(errorCode(error) ?? "");
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

/** The server has become a standby. */
const READ_ONLY = "25006";
const SQLSTATE = /^(?=.*\d)[0-9A-Z]{5}$/;
// The connection, the server's shutdown and start, its resources: not what the statement says.
const PASSING = /^(?:08|53|57P|58|40)/;

/** Whether the same statement may succeed later: the database is away or out of room, rather than in disagreement. */
export function isPassing(error: unknown): boolean {
  if (error instanceof TxboxError) return error.retryable;
  const code = errorCode(error);
  return code === undefined || !SQLSTATE.test(code) || PASSING.test(code);
}

// A wrong password or role, a database that does not exist, a right that is missing.
const CONFIGURATION = /^(?:28|3D000|42501)/;

export function classify(error: unknown): StoreFailure | undefined {
  const code = errorCode(error);
  if (code === undefined) return undefined;
  if (RETRIED.has(code)) return "conflict";
  if (isConnectionLoss(error)) return "unavailable";
  if (!SQLSTATE.test(code)) return undefined;
  if (CONFIGURATION.test(code)) return "configuration";
  return PASSING.test(code) || code === READ_ONLY ? "unavailable" : "statement";
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
