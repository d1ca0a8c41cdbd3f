import type { HandleResult, Store } from "../core/contracts.ts";
import { errorCode, TxboxError } from "../core/errors.ts";
import { outageOf } from "../core/publish-each.ts";

type Failure = Exclude<HandleResult, { status: "done" }>;

const NOT_THE_MESSAGE: ReadonlySet<string> = new Set([
  "schema_missing",
  "schema_outdated",
  "schema_too_new",
  "standby",
  "restored_copy",
]);
/** Said by the ledger before it runs a handler: this store or server has no transactions. */
const NOT_THE_MESSAGE_BEFORE: ReadonlySet<string> = new Set(["no_transaction", "invalid_option"]);
const NEVER: ReadonlySet<string> = new Set(["permanent", "receipt_expired"]);
/** Said of a message that the own log has no room for. */
const NEVER_BEFORE: ReadonlySet<string> = new Set(["payload_too_large"]);

/**
 * Decides between "this message failed" and "the database is out". Before the handler has begun, errors are the
 * database's unless it judged the statement. From then on they may come from anywhere: only what the store says is surely
 * an outage counts as one, and recording the failure shows whether the database is there.
 */
export function judgeFailure(error: unknown, handlerBegan: boolean, store: Pick<Store, "classify">): Failure {
  const code = errorCode(error);
  if (code !== undefined && NEVER.has(code)) return { status: "rejected", error };
  // It may say which part of what it needs is out, and for how long.
  if (code === "unavailable") return outageOf(error);
  if (code !== undefined && NOT_THE_MESSAGE.has(code)) return { status: "unavailable", error };
  if (handlerBegan)
    return { status: store.classify(error, "handler") === "unavailable" ? "unavailable" : "failed", error };
  if (code !== undefined && NEVER_BEFORE.has(code)) return { status: "rejected", error };
  if (error instanceof TxboxError) {
    return { status: NOT_THE_MESSAGE_BEFORE.has(error.code) ? "unavailable" : "failed", error };
  }
  return { status: store.classify(error, "store") === "statement" ? "failed" : "unavailable", error };
}
