import { TxboxError } from "../../core/errors.ts";
import { classify } from "./classify-error.ts";
import type { Document, MongoClientLike, MongoSession } from "./mongodb-client.ts";
import { isNoSuchTransaction } from "./mongodb-errors.ts";
import { guardSession, notYours, type RawSession } from "./session-guard.ts";

const TRANSACTION_OPTIONS: Document = {
  readConcern: { level: "snapshot" },
  writeConcern: { w: "majority" },
  readPreference: "primary",
};

/** A delivery waits for a concurrent one of the same message by colliding with it: no longer than this. */
const MAX_WAIT_MS = 120_000;
/** A handler that collides with other writers is run this often. */
const MAX_RUNS = 20;
const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 500;

/** One try at a transaction: in a session of its own, so that late calls of an earlier try cannot reach it. */
interface Try<T> {
  readonly run: (session: MongoSession) => Promise<T>;
  /** Whether the session has come to the part that the user wrote. */
  readonly hasBegun: (session: MongoSession) => boolean;
}

/**
 * One transaction, committed when `run` resolves and rolled back when it throws. A collision with another transaction
 * runs it again. An outage does not: whether to wait for the database is for the caller to decide.
 */
export async function inTransaction<T>(client: MongoClientLike, attempt: Try<T>): Promise<T> {
  const endsAt = performance.now() + MAX_WAIT_MS;
  let runs = 0;
  let aborted = 0;
  for (let tries = 1; ; tries++) {
    const session = client.startSession() as RawSession;
    try {
      return await once(session, attempt.run);
    } catch (error) {
      if (classify(error) !== "conflict" || performance.now() > endsAt) throw error;
      // The server forgets open transactions when its primary changes: that is not the handler's fault. Twice in a row
      // it is.
      aborted = isNoSuchTransaction(error) ? aborted + 1 : 0;
      if (aborted === 2) throw abortedByServer(error);
      if (attempt.hasBegun(session) && ++runs >= MAX_RUNS) throw error;
    }
    await pause(tries);
  }
}

async function once<T>(session: RawSession, run: (session: MongoSession) => Promise<T>): Promise<T> {
  const guard = guardSession(session);
  try {
    guard.start(TRANSACTION_OPTIONS);
    const result = await run(session);
    if (!session.inTransaction()) throw notYours("endSession()");
    await guard.commit();
    return result;
  } finally {
    await guard.end();
  }
}

function abortedByServer(cause: unknown): TxboxError {
  return new TxboxError("no_transaction", "MongoDB aborted the transaction before the handler ended", {
    field: "tx",
    fix: "An error inside a transaction ends it, such as a duplicate key: do not catch it, look before you write",
    cause,
  });
}

/** Longer each time, and not the same for all who collided. */
function pause(tries: number): Promise<void> {
  const limit = Math.min(FIRST_PAUSE_MS * 1.5 ** tries, MAX_PAUSE_MS);
  return new Promise((resolve) => setTimeout(resolve, Math.random() * limit));
}
