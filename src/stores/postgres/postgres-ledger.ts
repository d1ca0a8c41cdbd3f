import type { Ledger, Receipt } from "../../core/contracts.ts";
import { describeError, errorCode, TxboxError } from "../../core/errors.ts";
import { classify, isSerializationFailure } from "./classify-error.ts";
import { bridgedTransaction } from "./bridges/bridged-transaction.ts";
import { driverTransaction, literal, openWith, transactionRunner } from "./postgres-client.ts";
import type { Database, PostgresBridge, PostgresTx } from "./postgres-client.ts";
import { explain } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";
import { createReceiptDay, DEFAULT_RECEIPT_RETENTION_MS, FOREIGN, receiptDay } from "./receipt-days.ts";

export interface LedgerOptions {
  database: Database;
  names: Names;
  /** The library whose transactions handlers get. */
  bridge?: PostgresBridge | undefined;
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
  bridge,
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
          await createDay(error.day);
        } else if (isSerializationFailure(error) && attempt < TRIES) {
          await pause(attempt);
        } else {
          throw error instanceof MissingDay ? noReceiptDay(error.day, error.cause) : error;
        }
      }
    }
  }

  /** A role that may not create tables depends on maintenance for them: no message is to blame. */
  async function createDay(day: string): Promise<void> {
    try {
      await createReceiptDay(days, day);
    } catch (error) {
      throw classify(error) === "configuration" ? noReceiptDay(day, error) : error;
    }
  }

  /** Says what a failure of our own statement means. */
  async function explained<T>(receipt: Receipt, running: Promise<T>): Promise<T> {
    try {
      return await running;
    } catch (error) {
      throw errorCode(error) === CHECK_VIOLATION
        ? new MissingDay(receiptDay(receipt.messageId), error)
        : explain(error, names.schema);
    }
  }

  function transaction<T>(work: (tx: PostgresTx) => Promise<T>): Promise<T> {
    return bridge === undefined
      ? database.lazyTransaction(work)
      : bridgedTransaction(bridge, (run) => database.lazyTransaction(run), work as (tx: object) => Promise<T>);
  }

  return {
    transaction: (work) => sturdily(() => transaction(work)),
    async receive(given, receipt, status) {
      const tx = driverTransaction(given);
      const { insert, begin, resume } = status === "processed" ? sql.process : sql.store;
      const write = () => transactionRunner(tx).affect(insert(receipt), givenOf(receipt));
      const opened = openWith(tx, () => begin(receipt));
      // Once more when the receipt in the way was finished or dropped while this waited: the answer was too old to tell.
      for (let round = 1; ; round++) {
        const writing = round === 1 && opened !== undefined ? opened : write();
        if ((await explained(receipt, writing)) > 0) return true;
        const [row] = await explained(receipt, transactionRunner(tx).query(resume, keyOf(receipt)));
        if (row !== undefined || round === 2) return row?.[0] === "1";
      }
    },
    async fail(receipt, error) {
      try {
        const params = [...valuesOf(receipt), describeError(error)];
        const rows = await sturdily(() => explained(receipt, database.query(sql.fail, params)));
        // What is processed stays as it is.
        return rows[0] === undefined ? "processed" : Number(rows[0][0]);
      } catch (failure) {
        // The transaction of a handler that hangs in a query still holds the receipt: the inbox must not wait for it.
        if (errorCode(failure) === LOCK_NOT_AVAILABLE) return 0;
        throw failure;
      }
    },
    async keepScope(consumer, wanted) {
      const ask = (text: string) => database.query(text, [consumer]);
      try {
        if ((await ask(sql.isPerSource)).length > 0) return "source";
        if (wanted === "consumer" || (await ask(sql.hasReceipts)).length > 0) return "consumer";
        await ask(sql.makePerSource);
        return "source";
      } catch (error) {
        throw explain(error, names.schema);
      }
    },
  };
}

function keyOf({ consumer, messageId }: Receipt): (string | null)[] {
  return [receiptDay(messageId), consumer, messageId];
}

/** A parameter less when there is nothing to say. */
function givenOf(receipt: Receipt): (string | null)[] {
  return receipt.correlationId === null ? [...keyOf(receipt), receipt.type] : valuesOf(receipt);
}

function valuesOf(receipt: Receipt): (string | null)[] {
  return [...keyOf(receipt), receipt.type, receipt.correlationId];
}

function noReceiptDay(day: string, cause: unknown): TxboxError {
  return new TxboxError("unavailable", `There is no partition for receipts of ${day}, and this role cannot make it`, {
    fix: "Run `txbox maintain` every day with the role that owns the tables, or grant this one the right to create them",
    retryable: true,
    cause,
  });
}

class MissingDay extends Error {
  readonly day: string;

  constructor(day: string, cause: unknown) {
    super(`There is no partition for receipts of ${day}`, { cause });
    this.day = day;
  }
}

interface ReceiveSql {
  /** Nothing written: there is a receipt already. Waits for a transaction that is about to write it. */
  insert: (receipt: Receipt) => string;
  /** The same with its values as literals. */
  begin: (receipt: Receipt) => string;
  /** 1: an unfinished receipt has been taken on. 0: there is nothing left to do. */
  resume: string;
}

interface LedgerSql {
  process: ReceiveSql;
  store: ReceiveSql;
  fail: string;
  /** The mark of a consumer that counts per source is a receipt without an id, which no message has, kept for ever. */
  isPerSource: string;
  makePerSource: string;
  hasReceipts: string;
}

// ON CONFLICT DO UPDATE in one statement would take half as long again on the usual way, where there is no conflict.
function ledgerSql(names: Names): LedgerSql {
  const key = "bucket = $1::text::date and consumer = $2::text and message_id = $3::text";
  const insert = (more: string, values: string) => {
    const sql = (columns: string, params: string) =>
      `insert into ${names.receipt} (bucket, consumer, message_id, type, ${columns}${more})
       values (${params}, ${values}) on conflict do nothing`;
    const params = "$1::text::date, $2, $3, $4";
    const [short, long] = [sql("", params), sql("correlation_id, ", `${params}, $5`)];
    return {
      insert: ({ correlationId }: Receipt) => (correlationId === null ? short : long),
      begin: (receipt: Receipt) =>
        sql(
          receipt.correlationId === null ? "" : "correlation_id, ",
          givenOf(receipt)
            .map((value) => literal(value ?? ""))
            .join(", "),
        ),
    };
  };
  const resume = (set: string, unfinished: string) =>
    `with resumed as (update ${names.receipt} set ${set} where ${key} and ${unfinished} returning 1)
     select 1 from resumed union all select 0 from ${names.receipt} where ${key} and not ${unfinished}`;
  return {
    process: {
      ...insert("status, processed_at", "'processed', pg_catalog.now()"),
      resume: resume(
        "status = 'processed', attempts = attempts + 1, processed_at = pg_catalog.now()",
        "status <> 'processed'",
      ),
    },
    store: {
      ...insert("status, attempts", "'received', 0"),
      resume: resume("status = 'received'", "status = 'failed'"),
    },
    fail: `insert into ${names.receipt} as r (bucket, consumer, message_id, type, correlation_id, status, attempts, last_error)
      select $1::text::date, $2::text, $3::text, $4::text, $5::text, 'failed', 1, $6::text
      from (select pg_catalog.set_config('lock_timeout', '2s', true) as was) t where was is not null
      on conflict (bucket, consumer, message_id) do update set attempts = r.attempts + 1, last_error = excluded.last_error
      where r.status <> 'processed' returning attempts`,
    isPerSource: `select 1 from ${names.receipt} where bucket = '${FOREIGN}' and consumer = $1::text and message_id = ''`,
    makePerSource: `insert into ${names.receipt} (bucket, consumer, message_id, type, status, received_at)
      values ('${FOREIGN}', $1::text, '', 'txbox', 'processed', 'infinity') on conflict do nothing`,
    // From one day to the next by the index, which begins with the day.
    hasReceipts: `with recursive day(bucket) as (
        select pg_catalog.min(bucket) from ${names.receipt}
        union all
        select (select pg_catalog.min(r.bucket) from ${names.receipt} r where r.bucket > day.bucket) from day where day.bucket is not null)
      select 1 from day where exists (
        select from ${names.receipt} r where r.bucket = day.bucket and r.consumer = $1::text) limit 1`,
  };
}

/** A little, and not the same for all who collided. */
function pause(attempt: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.random() * 5 * 2 ** attempt));
}
