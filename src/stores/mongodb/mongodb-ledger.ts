import type { Ledger, Receipt } from "../../core/contracts.ts";
import { describeError, TxboxError } from "../../core/errors.ts";
import { uuidv7Time } from "../../core/uuid.ts";
import type { Document, MongoClientLike, MongoSession } from "./mongodb-client.ts";
import { explain, isDuplicateKey, isTimeExpired } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { inTransaction } from "./mongodb-transaction.ts";

export interface LedgerOptions {
  client: MongoClientLike;
  tables: Tables;
  transactions: boolean;
  receiptRetentionMs: number;
}

/** A handler that hangs in its transaction holds its receipt: a failure waits for it no longer than this. */
const FAIL_WAIT_MS = 2000;
const FAIL_TRIES = 8;
const YEAR_MS = 365 * 86_400_000;

/**
 * Receipts in the handler's own transaction. `received` means that the message is in this store's own outbox, `failed`
 * that its sender still has it; either may become `processed`, which is final.
 */
export function createLedger({
  client,
  tables,
  transactions,
  receiptRetentionMs,
}: LedgerOptions): Ledger<MongoSession> {
  const { inbox } = tables;
  // Sessions that have their receipt, so that a handler may run in them.
  const received = new WeakSet<MongoSession>();
  const hasBegun = (session: MongoSession): boolean => received.has(session);

  return {
    async transaction(run) {
      requireTransactions(transactions);
      try {
        return await inTransaction(client, { run, hasBegun });
      } catch (error) {
        throw explain(error);
      }
    },
    async receive(session, receipt, status) {
      const _id = idOf(receipt);
      const expire_at = expiry(receipt, receiptRetentionMs);
      const processed = status === "processed";
      const first = {
        type: receipt.type,
        correlation_id: receipt.correlationId,
        status,
        attempts: processed ? 1 : 0,
        last_error: null,
        received_at: new Date(),
        processed_at: processed ? new Date() : null,
        expire_at,
      };
      const made = await inbox.updateOne({ _id }, { $setOnInsert: first }, { session, upsert: true });
      if (made.upsertedCount > 0) {
        received.add(session);
        return true;
      }
      const unfinished = processed ? { $ne: "processed" } : "failed";
      const change = processed
        ? { $set: { status, processed_at: new Date(), expire_at }, $inc: { attempts: 1 } }
        : { $set: { status, expire_at } };
      const { matchedCount } = await inbox.updateOne({ _id, status: unfinished }, change, { session });
      if (matchedCount > 0) received.add(session);
      return matchedCount > 0;
    },
    async fail(receipt, error) {
      const _id = idOf(receipt);
      const expire_at = expiry(receipt, receiptRetentionMs);
      const first = {
        type: receipt.type,
        correlation_id: receipt.correlationId,
        status: "failed",
        received_at: new Date(),
        processed_at: null,
        expire_at,
      };
      const change = { $setOnInsert: first, $inc: { attempts: 1 }, $set: { last_error: describeError(error) } };
      const options = { upsert: true, returnDocument: "after", maxTimeMS: FAIL_WAIT_MS };
      for (let attempt = 1; ; attempt++) {
        try {
          const row = await inbox.findOneAndUpdate({ _id, status: { $ne: "processed" } }, change, options);
          return Number(row?.["attempts"] ?? 0);
        } catch (failure) {
          if (isTimeExpired(failure)) return 0;
          if (!isDuplicateKey(failure)) throw failure;
          // There is a receipt that the filter left out, or one that another process has just made. After this answer
          // the message counts as processed, so a failover must not take the receipt back.
          const found = await inbox.findOne({ _id }, { readConcern: { level: "majority" } });
          if (found?.["status"] === "processed") return "processed";
          if (attempt === FAIL_TRIES) throw notYetByMajority(failure);
          await new Promise((resolve) => setTimeout(resolve, 20 * attempt));
        }
      }
    },
    async keepScope(consumer, wanted) {
      // A receipt without an id, which no message has. It has no time to expire at.
      const mark = { consumer, message_id: "" };
      try {
        if ((await inbox.findOne({ _id: mark })) !== null) return "source";
        if (wanted === "consumer") return "consumer";
        const ofConsumer = { $gt: mark, $lt: { consumer, message_id: {} } };
        if ((await inbox.findOne({ _id: ofConsumer })) !== null) return "consumer";
        const first = { type: "txbox", status: "processed", received_at: new Date() };
        await inbox.updateOne({ _id: mark }, { $setOnInsert: first }, { upsert: true });
        return "source";
      } catch (error) {
        throw explain(error);
      }
    },
  };
}

function requireTransactions(transactions: boolean): void {
  if (transactions) return;
  throw new TxboxError("no_transaction", "The inbox needs transactions, and this store was created without", {
    fix: "Use a replica set; or write results with writeResult(), which a repeat does not change",
  });
}

function notYetByMajority(cause: unknown): TxboxError {
  return new TxboxError("unavailable", "The receipt of the message is not yet known to a majority of the replica set", {
    retryable: true,
    cause,
  });
}

function idOf({ consumer, messageId }: Receipt): Document {
  return { consumer, message_id: messageId };
}

/** When a receipt may go: by then its message is refused for its age. */
function expiry({ messageId }: Receipt, retentionMs: number): Date {
  const now = Date.now();
  const time = uuidv7Time(messageId);
  if (time === undefined) return new Date(now + retentionMs);
  if (time < now - retentionMs) throw expired(messageId, "is older than the receipts are kept");
  if (time > now + YEAR_MS) throw expired(messageId, "lies more than a year ahead");
  // A day more, for a clock that is wrong.
  return new Date(Math.max(time, now) + retentionMs + 86_400_000);
}

function expired(id: string, why: string): TxboxError {
  return new TxboxError(
    "receipt_expired",
    `The time inside the message id (${id}) ${why}, so a repeat could not be told from a first delivery`,
    { field: "id", fix: "Look at it as a dead letter; if ids this old are normal, raise receiptRetentionMs" },
  );
}
