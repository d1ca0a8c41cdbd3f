import type { FailureOrigin, StoreFailure } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";

// The primary is away, going or changing; a node cannot be reached; the disk is full; a majority does not answer; a shard moves.
const OUTAGE: ReadonlySet<number> = new Set([
  6, 7, 63, 64, 89, 91, 100, 133, 134, 150, 189, 202, 234, 262, 317, 358, 365, 391, 462, 9001, 10_058, 10_107, 11_600,
  11_602, 13_388, 13_435, 13_436, 14_031,
]);
// A limit of time, a killed operation or cursor, a transaction that was open for too long: a slow handler gets these too.
const LIMIT: ReadonlySet<number> = new Set([43, 50, 237, 290, 11_601]);
// A lock not had, a write conflict, a snapshot that is gone, a transaction that the server has given up.
const CONFLICT: ReadonlySet<number> = new Set([24, 112, 225, 246, 251]);
// A wrong user or password, a right that is missing, a write concern that this replica set does not have.
const CONFIGURATION: ReadonlySet<number> = new Set([11, 13, 18, 79, 8000]);
const ILLEGAL_OPERATION = 20;

const OUTAGE_NAMES: ReadonlySet<string> = new Set([
  "MongoNetworkError",
  "MongoServerSelectionError",
  "MongooseServerSelectionError",
  "MongoPoolClearedError",
  "PoolClearedOnNetworkError",
  "MongoPoolClosedError",
  "MongoWaitQueueTimeoutError",
  "MongoNotConnectedError",
  "MongoServerClosedError",
  "MongoTopologyClosedError",
  "MongoClientClosedError",
  "MongoStalePrimaryError",
]);
const LIMIT_NAMES: ReadonlySet<string> = new Set([
  "MongoNetworkTimeoutError",
  "MongoOperationTimeoutError",
  "MongoExpiredSessionError",
]);
const CONFIGURATION_NAMES: ReadonlySet<string> = new Set([
  "MongoParseError",
  "MongoMissingCredentialsError",
  "MongoMissingDependencyError",
  "MongoCompatibilityError",
]);
const OUTAGE_LABELS = ["RetryableWriteError", "UnknownTransactionCommitResult", "PoolRequestedRetry", "RetryableError"];
const BUFFERING = /buffering timed out/;

/** What an error means for the database, also where a library wraps the driver's. */
export function classify(error: unknown, origin?: FailureOrigin): StoreFailure | undefined {
  const found = mongoErrorIn(error);
  if (found === undefined) return undefined;
  const code = numericCode(found);
  const { name } = found;
  if (name === "MongooseError") return BUFFERING.test(found.message) ? "unavailable" : undefined;
  if (CONFIGURATION_NAMES.has(name) || isConfiguration(code, found)) return "configuration";
  // The driver waits for an answer, or for a connection: only the latter is surely not a slow operation.
  if (LIMIT_NAMES.has(name) && !isBeforeHandshake(found)) return origin === "handler" ? "statement" : "unavailable";
  if (OUTAGE_NAMES.has(name) || isBeforeHandshake(found)) return "unavailable";
  if (code !== undefined && OUTAGE.has(code)) return "unavailable";
  // A commit whose result is unknown: the ledger will tell, whatever the code.
  if (hasLabel(found, "UnknownTransactionCommitResult")) return "unavailable";
  if (code !== undefined && LIMIT.has(code)) return origin === "handler" ? "statement" : "unavailable";
  if ((code !== undefined && CONFLICT.has(code)) || hasLabel(found, "TransientTransactionError")) return "conflict";
  return OUTAGE_LABELS.some((label) => hasLabel(found, label)) ? "unavailable" : "statement";
}

const MAX_CAUSES = 10;

/** The driver's or mongoose's error in a chain of causes. */
export function mongoErrorIn(error: unknown): Error | undefined {
  let one = error;
  for (let depth = 0; depth < MAX_CAUSES && one instanceof Error && !(one instanceof TxboxError); depth++) {
    if ("hasErrorLabel" in one || one.name.startsWith("Mongo")) return one;
    one = one.cause;
  }
  return undefined;
}

export function numericCode(error: unknown): number | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "number" ? error.code : undefined;
}

export function hasLabel(error: unknown, label: string): boolean {
  return typeof error === "object" && error !== null && "hasErrorLabel" in error
    ? (error as { hasErrorLabel(label: string): boolean }).hasErrorLabel(label)
    : false;
}

/** A standalone server refuses transactions with a code that has other uses too. */
function isConfiguration(code: number | undefined, { message }: Error): boolean {
  if (code === undefined) return false;
  return CONFIGURATION.has(code) || (code === ILLEGAL_OPERATION && message.includes("Transaction numbers"));
}

function isBeforeHandshake(error: Error): boolean {
  return "beforeHandshake" in error && error.beforeHandshake === true;
}
