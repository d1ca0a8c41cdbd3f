import type { HandleResult } from "../core/contracts.ts";
import { errorCode, TxboxError } from "../core/errors.ts";

type Failure = Exclude<HandleResult, { status: "done" }>;

// SQLSTATEs that say that the database is not there, is going down, has no room, or has become a standby.
const OUTAGE = /^(?:08...|57P0.|53...|25006)$/;
// EPIPE is none.
const SQLSTATE = /^(?=.*\d)[0-9A-Z]{5}$/;
const NOT_THE_MESSAGE: ReadonlySet<string> = new Set([
  "unavailable",
  "schema_missing",
  "schema_outdated",
  "schema_too_new",
  "standby",
  "restored_copy",
]);
const NEVER: ReadonlySet<string> = new Set(["permanent", "receipt_expired"]);

/**
 * Decides between "this message failed" and "the database is out". The ledger's own errors are the database's unless
 * it judged the statement; a handler's may come from anywhere, so only what is surely an outage counts as one.
 */
export function judgeFailure(error: unknown, fromHandler: boolean): Failure {
  const code = errorCode(error);
  if (code !== undefined && NEVER.has(code)) return { status: "rejected", error };
  if (code !== undefined && (NOT_THE_MESSAGE.has(code) || OUTAGE.test(code))) return { status: "unavailable", error };
  if (fromHandler || error instanceof TxboxError) return { status: "failed", error };
  return code !== undefined && SQLSTATE.test(code) ? { status: "failed", error } : { status: "unavailable", error };
}
