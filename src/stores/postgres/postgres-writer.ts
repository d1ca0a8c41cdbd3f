import type { Enqueued, PreparedMessage, Writer } from "../../core/contracts.ts";
import type { TxboxError } from "../../core/errors.ts";
import { enqueueSql, TRANSACTION_ID, type EnqueueSql } from "./enqueue-sql.ts";
import { notATransaction, plainArray, textArray, transactionRunner } from "./postgres-client.ts";
import type { PostgresBridge, PostgresTx, Row, ScriptRunner } from "./postgres-client.ts";
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

  async function inTransaction<T>(tx: PostgresTx, run: (runner: ScriptRunner, open: OpenTransaction) => Promise<T>) {
    const runner = transactionRunner(tx, bridge);
    try {
      const id = runner.mayAutocommit ? await transactionId(runner) : undefined;
      return await run(runner, { within: id !== undefined, params: id === undefined ? [] : [id] });
    } catch (error) {
      throw explain(error, names.schema);
    }
  }

  return {
    async enqueue(tx, messages) {
      return inTransaction(tx, async (runner, open) => {
        const [only] = messages;
        if (messages.length === 1 && only !== undefined && only.deliverAt === null && !open.within) {
          return [await enqueueOne(sql, runner, only)];
        }
        const chosen = messages.some(({ idChosen }) => idChosen);
        const later = messages.some(({ deliverAt }) => deliverAt !== null);
        const text = sql.many({ chosen, later, within: open.within });
        const params = [...arrays(messages, { chosen, later }), ...open.params];
        // Ids that txbox made are always new, so their statement returns nothing.
        if (!chosen && !later) {
          const count = await runner.affect(text, params);
          if (open.within && count === 0) throw notOpen();
          return messages.map(({ id }) => ({ id, duplicate: false }));
        }
        const written = idsOf(await runner.query(text, params));
        return messages.map(({ id, idChosen }) => ({ id, duplicate: idChosen && !written.has(id) }));
      });
    },
    async lockKey(tx, stream, key) {
      const scope = [names.lockScope, stream, key].join("\u001F");
      await inTransaction(tx, async (runner, open) => {
        // Its row is a void, which not every library can read.
        const locked = await runner.affect(sql.lockKey(open), [scope, ...open.params]);
        if (open.within && locked === 0) throw notOpen();
      });
    },
    async cancel(tx, id) {
      return inTransaction(tx, async (runner, open) => {
        return idsOf(await runner.query(sql.cancel(open), [id, ...open.params])).has(id);
      });
    },
  };
}

/** Whether statements have to say which transaction they belong to, and the parameter in which they say it. */
interface OpenTransaction {
  readonly within: boolean;
  readonly params: readonly string[];
}

/**
 * Where neither the driver nor the library can tell that COMMIT is not under way already: outside of a transaction every
 * statement has an id of its own, so one that is tied to the id of the statement before it changes nothing.
 */
async function transactionId(runner: ScriptRunner): Promise<string> {
  const [[id] = []] = await runner.query(TRANSACTION_ID);
  return String(id);
}

function idsOf(rows: readonly Row[]): ReadonlySet<string> {
  return new Set(
    rows.map(([id]) => {
      if (id == null) throw notOpen();
      return id;
    }),
  );
}

function notOpen(): TxboxError {
  return notATransaction(
    "a client outside a transaction",
    "Enqueue after BEGIN, and wait for it before COMMIT or ROLLBACK",
  );
}

async function enqueueOne(sql: EnqueueSql, runner: ScriptRunner, message: PreparedMessage): Promise<Enqueued> {
  const columns: number[] = [];
  const params: string[] = [];
  for (const [column, value] of valuesOf(message).entries()) {
    if (value === null) continue;
    columns.push(column);
    params.push(value);
  }
  const { idChosen, id } = message;
  const written = await runner.affect(sql.one(columns, { chosen: idChosen, sendsText: runner.sendsText }), params);
  return { id, duplicate: idChosen && written === 0 };
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

interface Choices {
  readonly chosen: boolean;
  readonly later: boolean;
}

function arrays(messages: readonly PreparedMessage[], choices: Choices): string[] {
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
    ...choicesOf(messages, choices),
  ];
}

/** Parameters 13 and 14, present only in the statements that use them. */
function choicesOf(messages: readonly PreparedMessage[], { chosen, later }: Choices): string[] {
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
