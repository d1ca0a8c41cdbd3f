import type { HandleResult } from "../core/contracts.ts";
import { errorCode, TxboxError } from "../core/errors.ts";

type Failure = Exclude<HandleResult, { status: "done" }>;

// SQLSTATEs that say that the database is not there, is going down, has no room, or has become a standby.
const OUTAGE = /^(?:08...|57P0.|53...|25006)$/;
// A handler can bring the others about by itself: a limit of its session, a transaction that it made read-only.
const OUTAGE_UNDER_HANDLER = /^(?:08...|57P0.|53[13]00)$/;
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
 * Decides between "this message failed" and "the database is out". Before the handler has begun, errors are the
 * database's unless it judged the statement. From then on they may come from anywhere, or be a session that the handler
 * cost its life: only what is surely an outage counts as one, and who records the failure sees whether the database is there.
 */
export function judgeFailure(error: unknown, handlerBegan: boolean): Failure {
  const code = errorCode(error);
  if (code !== undefined && NEVER.has(code)) return { status: "rejected", error };
  const outage = handlerBegan ? OUTAGE_UNDER_HANDLER : OUTAGE;
  if (code !== undefined && (NOT_THE_MESSAGE.has(code) || outage.test(code))) return { status: "unavailable", error };
  if (handlerBegan || error instanceof TxboxError) return { status: "failed", error };
  return code !== undefined && SQLSTATE.test(code) ? { status: "failed", error } : { status: "unavailable", error };
}
