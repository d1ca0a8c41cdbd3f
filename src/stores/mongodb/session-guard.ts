import { TxboxError } from "../../core/errors.ts";
import type { Document, MongoSession } from "./mongodb-client.ts";

/** What the driver's session can do about transactions. */
export interface RawSession extends MongoSession {
  startTransaction(options?: Document): void;
  commitTransaction(): Promise<unknown>;
  abortTransaction(): Promise<unknown>;
  withTransaction<T>(run: () => Promise<T>, options?: Document): Promise<T>;
}

/** The only hand on the transaction of a session. */
export interface GuardedSession {
  start(options: Document): void;
  commit(): Promise<void>;
  /** Aborts what is open and ends the session: the driver refuses every later call with it. */
  end(): Promise<void>;
}

/**
 * Refuses to begin or end a transaction through the session itself. The receipt and the handler's changes must commit
 * together, and what follows an end would be written outside of any transaction. Ending the session is let through, for a
 * client ends all its sessions when it is closed: it aborts the transaction, and nothing can follow.
 */
export function guardSession(session: RawSession): GuardedSession {
  const start = session.startTransaction.bind(session);
  const commit = session.commitTransaction.bind(session);
  const abort = session.abortTransaction.bind(session);
  const endSession = session.endSession.bind(session);

  async function end(): Promise<void> {
    // The driver's own endSession would call the refused abort.
    if (session.inTransaction()) await abort().catch(() => undefined);
    await endSession();
  }

  const refuse = (name: string) => (): never => {
    throw notYours(`${name}()`);
  };
  const refuseLater = (name: string) => (): Promise<never> => Promise.reject(notYours(`${name}()`));
  Object.assign(session, {
    startTransaction: refuse("startTransaction"),
    commitTransaction: refuseLater("commitTransaction"),
    abortTransaction: refuseLater("abortTransaction"),
    withTransaction: refuseLater("withTransaction"),
    endSession: end,
  });
  return {
    start,
    async commit() {
      await commit();
    },
    end,
  };
}

export function notYours(what: string): TxboxError {
  return new TxboxError("no_transaction", `A handler may not begin or end its transaction, but called ${what}`, {
    field: "tx",
    fix: "Throw to roll back, return to commit",
  });
}
