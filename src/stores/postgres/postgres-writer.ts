import type { Enqueued, PreparedMessage, Writer } from "../../core/contracts.ts";
import { errorCode } from "../../core/errors.ts";
import { enqueueSql, type EnqueueSql } from "./enqueue-sql.ts";
import { notATransaction, plainArray, textArray, transactionRunner } from "./postgres-client.ts";
import type { PostgresBridge, PostgresTx, ScriptRunner } from "./postgres-client.ts";
import { explain } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";

export interface WriterOptions {
  names: Names;
  /** The library whose transactions are taken beside those of the drivers. */
  bridge?: PostgresBridge | undefined;
}

/** Writes to the log in the caller's transaction, in one round trip. */
export function createWriter({ names, bridge }: WriterOptions): Writer<PostgresTx> {
  const sql = enqueueSql(names);

  async function inTransaction<T>(tx: PostgresTx, run: (runner: ScriptRunner) => Promise<T>): Promise<T> {
    const runner = transactionRunner(tx, bridge);
    if (runner.mayAutocommit) await requireOpenTransaction(runner);
    try {
      return await run(runner);
    } catch (error) {
      throw explain(error, names.schema);
    }
  }

  return {
    async enqueue(tx, messages) {
      const [only] = messages;
      if (messages.length === 1 && only !== undefined && only.deliverAt === null) {
        const columns: number[] = [];
        const params: string[] = [];
        for (const [column, value] of valuesOf(only).entries()) {
          if (value === null) continue;
          columns.push(column);
          params.push(value);
        }
        const written = await inTransaction(tx, (runner) => {
          const { sendsText } = runner;
          return runner.affect(sql.one(columns, { chosen: only.idChosen, sendsText }), params);
        });
        return [{ id: only.id, duplicate: only.idChosen && written === 0 }];
      }
      const rows = await inTransaction(tx, (runner) => runner.query(manySql(sql, messages), arrays(messages)));
      const written = new Set(rows.map(([id]) => id));
      // Ids that txbox made are always new, so their statement returns nothing.
      return messages.map(({ id, idChosen }) => ({ id, duplicate: idChosen && !written.has(id) }) satisfies Enqueued);
    },
    async lockKey(tx, stream, key) {
      const scope = [names.lockScope, stream, key].join("\u001F");
      // Its row is a void, which not every library can read.
      await inTransaction(tx, (runner) => runner.affect(sql.lockKey, [scope]));
    },
    async cancel(tx, id) {
      return (await inTransaction(tx, (runner) => runner.query(sql.cancel, [id]))).length > 0;
    },
  };
}

const NO_ACTIVE_TRANSACTION = "25P01";

/**
 * For clients that do not tell whether they are in a transaction: outside one a savepoint is an error and changes
 * nothing. No expression inside the INSERT itself could tell: with the extended protocol even now() and
 * statement_timestamp() differ in a statement that commits by itself.
 */
async function requireOpenTransaction(runner: ScriptRunner): Promise<void> {
  try {
    await runner.exec("savepoint txbox_enqueue; release savepoint txbox_enqueue");
  } catch (error) {
    if (errorCode(error) !== NO_ACTIVE_TRANSACTION) throw error;
    throw notATransaction("a client outside a transaction", "Run BEGIN on it first");
  }
}

/** The values of one message in the order of the columns in every statement. */
function valuesOf(message: PreparedMessage): (string | null)[] {
  const { body } = message;
  const isText = typeof body === "string";
  return [
    message.id,
    String(message.size),
    String(message.lane),
    message.stream,
    message.type,
    message.key,
    message.aggregateType,
    message.aggregateId,
    message.correlationId,
    headersOf(message),
    isText ? body : null,
    isText ? null : hex(body),
  ];
}

function manySql(sql: EnqueueSql, messages: readonly PreparedMessage[]): string {
  const chosen = messages.some(({ idChosen }) => idChosen);
  const later = messages.some(({ deliverAt }) => deliverAt !== null);
  return chosen ? (later ? sql.manyChosenLater : sql.manyChosen) : later ? sql.manyLater : sql.many;
}

function arrays(messages: readonly PreparedMessage[]): string[] {
  const text = (of: (message: PreparedMessage) => string | null) => textArray(messages.map((one) => of(one) ?? ""));
  return [
    text(({ id }) => id),
    plainArray(messages.map(({ size }) => size)),
    plainArray(messages.map(({ lane }) => lane)),
    text(({ stream }) => stream),
    text(({ type }) => type),
    text(({ key }) => key),
    text(({ aggregateType }) => aggregateType),
    text(({ aggregateId }) => aggregateId),
    text(({ correlationId }) => correlationId),
    text(headersOf),
    text(({ body }) => (typeof body === "string" ? body : null)),
    text(({ body }) => (typeof body === "string" ? null : hex(body))),
    ...choices(messages),
  ];
}

/** Parameters 13 and 14, present only in the statements that use them. */
function choices(messages: readonly PreparedMessage[]): string[] {
  const chosen = messages.some(({ idChosen }) => idChosen);
  const later = messages.some(({ deliverAt }) => deliverAt !== null);
  return [
    ...(chosen ? [plainArray(messages.map(({ idChosen }) => String(idChosen)))] : []),
    ...(later
      ? [
          plainArray(
            messages.map(({ deliverAt }) => (deliverAt === null ? 0 : Math.max(0, deliverAt.getTime()) / 1000)),
          ),
        ]
      : []),
  ];
}

function headersOf({ headers }: PreparedMessage): string | null {
  return headers === "{}" ? null : headers;
}

function hex(bytes: Uint8Array): string {
  return `\\x${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex")}`;
}
