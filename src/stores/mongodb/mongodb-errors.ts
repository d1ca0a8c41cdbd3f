import { TxboxError } from "../../core/errors.ts";
import { classify, mongoErrorIn, numericCode } from "./classify-error.ts";

const MIGRATE = "Run `txbox migrate`, or `await store.migrator.migrate()`";

export function schemaMissing(outbox: string): TxboxError {
  return new TxboxError("schema_missing", `The collections and indexes of ${outbox} have not been made`, {
    fix: MIGRATE,
  });
}

export function schemaOutdated(why: string): TxboxError {
  return new TxboxError("schema_outdated", why, { fix: MIGRATE });
}

export function schemaTooNew(found: number, known: number): TxboxError {
  return new TxboxError(
    "schema_too_new",
    `The txbox collections are at version ${found}, this code knows ${known} and would harm them`,
    { fix: "Upgrade the txbox package of this process" },
  );
}

export function noSuchRelay(relay: string): TxboxError {
  return new TxboxError("not_found", `There is no relay "${relay}"`, {
    field: "relay",
    fix: "List them with `txbox relays list`",
  });
}

/** How messages come is decided for each relay. */
export function optionOfRelay(field: string): TxboxError {
  const example =
    field === "source" ? 'createRelay({ store, source: "stream", … })' : "createRelay({ store, onEvent, … })";
  return new TxboxError("invalid_option", `createMongoStore: ${field} is an option of the relay`, {
    field,
    fix: `Write ${example}`,
  });
}

export function noArchive(): TxboxError {
  return new TxboxError(
    "invalid_option",
    "createMongoStore: MongoDB deletes by its TTL index, so there is no archive",
    {
      field: "archive",
      fix: "Leave archive out. To keep what was delivered, raise retentionMs or export the collection",
    },
  );
}

export function noChangeStreams(sharded: boolean): TxboxError {
  const polling = 'create the relay with source: "polling"';
  return sharded
    ? new TxboxError("invalid_option", "Messages by change stream are not for sharded clusters", {
        field: "source",
        fix: `Keep the outbox in a replica set of its own, or ${polling}`,
      })
    : new TxboxError("invalid_option", "This MongoDB is a standalone server, which has no change streams", {
        field: "source",
        fix: `Start it as a replica set of one node (mongod --replSet rs0, then rs.initiate()), or ${polling}`,
      });
}

const NO_REPLICA_SET = 20;
const MAX_TIME_EXPIRED = 50;
const DUPLICATE_KEY = 11_000;
const CHANGE_STREAM_HISTORY_LOST = 286;
const CAPPED_POSITION_LOST = 136;
const SNAPSHOT_UNAVAILABLE = 246;
const NO_SUCH_TRANSACTION = 251;

/** Says what to do when a server without a replica set is asked for a transaction. */
export function explain(error: unknown): unknown {
  const message = error instanceof Error ? error.message : "";
  const standalone =
    (numericCode(error) === NO_REPLICA_SET && message.includes("Transaction numbers")) ||
    message.includes("does not support retryable writes");
  if (!standalone) return error;
  return new TxboxError("no_transaction", "This MongoDB is a standalone server, which has no transactions", {
    fix: "Start it as a replica set of one node (mongod --replSet rs0, then rs.initiate()), or create the store with transactions: false",
    cause: error,
  });
}

export function isDuplicateKey(error: unknown): boolean {
  return numericCode(error) === DUPLICATE_KEY;
}

/** A bulk write of which nothing failed but what was there already. */
export function areDuplicateKeys(error: unknown): boolean {
  const { writeErrors, writeConcernErrors } = Object(error) as { writeErrors?: unknown; writeConcernErrors?: unknown };
  if (Array.isArray(writeConcernErrors) && writeConcernErrors.length > 0) return false;
  const failures = Array.isArray(writeErrors) ? writeErrors : [error];
  return isDuplicateKey(error) && failures.every((failure) => isDuplicateKey(failure));
}

export function isTimeExpired(error: unknown): boolean {
  return numericCode(error) === MAX_TIME_EXPIRED;
}

/** A change stream cannot go on from where it was: that is no longer in the oplog. */
export function isHistoryLost(error: unknown): boolean {
  const code = numericCode(error);
  return code === CHANGE_STREAM_HISTORY_LOST || code === CAPPED_POSITION_LOST;
}

/** Collections or indexes were made a moment ago: a snapshot can be had in a moment. */
export function isSnapshotUnavailable(error: unknown): boolean {
  return numericCode(error) === SNAPSHOT_UNAVAILABLE;
}

/** Whether the same operation may succeed later: the server is away, and did not refuse it. */
export function isPassing(error: unknown): boolean {
  if (error instanceof TxboxError) return error.retryable;
  const kind = classify(error);
  return kind === undefined || kind === "unavailable" || kind === "conflict";
}

/** The server does not know the transaction: it aborted it after an error inside, or another member is primary now. */
export function isNoSuchTransaction(error: unknown): boolean {
  return numericCode(mongoErrorIn(error)) === NO_SUCH_TRANSACTION;
}
