import type { Ledger, Receipt } from "../../core/contracts.ts";
import { describeError, errorCode } from "../../core/errors.ts";
import { transactionRunner, type Database, type PostgresTx, type Row, type SqlRunner } from "./postgres-client.ts";
import { explain, isSerializationFailure } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";
import { createReceiptDay, DEFAULT_RECEIPT_RETENTION_MS, receiptDay } from "./receipt-days.ts";

export interface LedgerOptions {
  database: Database;
  names: Names;
  /** Default 14 days. */
  receiptRetentionMs?: number;
}

const TRIES = 5;
const CHECK_VIOLATION = "23514";
const LOCK_NOT_AVAILABLE = "55P03";

/**
 * Receipts in the handler's own transaction. `received` means that the message is in this store's own log, `failed`
 * that its sender still has it; either may become `processed`, which is final.
 */
export function createLedger({
  database,
  names,
  receiptRetentionMs = DEFAULT_RECEIPT_RETENTION_MS,
}: LedgerOptions): Ledger<PostgresTx> {
  const days = { database, names, retentionMs: receiptRetentionMs };
  const sql = ledgerSql(names);

  /** Runs again after what is not the caller's fault: a serialisation failure, a deadlock, a day without a partition. */
  async function sturdily<T>(run: () => Promise<T>): Promise<T> {
    let created: string | undefined;
    for (let attempt = 1; ; attempt++) {
      try {
        return await run();
      } catch (error) {
        if (error instanceof MissingDay && error.day !== created) {
          created = error.day;
          await createReceiptDay(days, error.day);
        } else if (isSerializationFailure(error) && attempt < TRIES) {
          await pause(attempt);
        } else {
          throw error instanceof MissingDay ? error.cause : error;
        }
      }
    }
  }

  return {
    transaction: (run) => sturdily(() => database.transaction((tx) => run(tx))),
    async receive(tx, receipt, status) {
      const text = status === "processed" ? sql.process : sql.store;
      return (await insert(transactionRunner(tx), names, text, receipt)).length > 0;
    },
    async fail(receipt, error) {
      try {
        const rows = await sturdily(() => insert(database, names, sql.fail, receipt, describeError(error)));
        return Number(rows[0]?.[0] ?? 0);
      } catch (failure) {
        // The transaction of a handler that hangs in a query still holds the receipt: nobody may wait for that.
        if (errorCode(failure) === LOCK_NOT_AVAILABLE) return 0;
        throw failure;
      }
    },
  };
}

async function insert(
  runner: SqlRunner,
  names: Names,
  text: string,
  receipt: Receipt,
  ...more: string[]
): Promise<Row[]> {
  const { consumer, messageId, type, correlationId } = receipt;
  const day = receiptDay(messageId);
  try {
    return await runner.query(text, [day, consumer, messageId, type, correlationId, ...more]);
  } catch (error) {
    throw errorCode(error) === CHECK_VIOLATION ? new MissingDay(day, error) : explain(error, names.schema);
  }
}

class MissingDay extends Error {
  readonly day: string;

  constructor(day: string, cause: unknown) {
    super(`There is no partition for receipts of ${day}`, { cause });
    this.day = day;
  }
}

function ledgerSql(names: Names): { process: string; store: string; fail: string } {
  const columns = "bucket, consumer, message_id, type, correlation_id, status, attempts";
  const values = "$1::text::date, $2::text, $3::text, $4::text, $5::text";
  const conflict = "on conflict (bucket, consumer, message_id) do update set";
  return {
    process: `insert into ${names.receipt} as r (${columns}, processed_at) values (${values}, 'processed', 1, now())
      ${conflict} status = 'processed', attempts = r.attempts + 1, processed_at = now() where r.status <> 'processed' returning 1`,
    store: `insert into ${names.receipt} as r (${columns}) values (${values}, 'received', 0)
      ${conflict} status = 'received' where r.status = 'failed' returning 1`,
    fail: `insert into ${names.receipt} as r (${columns}, last_error)
      select ${values}, 'failed', 1, $6::text from (select set_config('lock_timeout', '2s', true) as was) t where was is not null
      ${conflict} attempts = r.attempts + 1, last_error = excluded.last_error where r.status <> 'processed' returning attempts`,
  };
}

/** A little, and not the same for all who collided. */
function pause(attempt: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.random() * 5 * 2 ** attempt));
}
