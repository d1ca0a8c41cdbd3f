import type { PreparedMessage, Writer } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import type { Document, MongoSession, MongoTx } from "./mongodb-client.ts";
import { sessionOf } from "./mongodb-client.ts";
import { documentOf } from "./mongodb-document.ts";
import { explain, isDuplicateKey } from "./mongodb-errors.ts";
import type { Tables } from "./mongodb-names.ts";
import { nextPositions, sequenceId } from "./mongodb-sequence.ts";

/** A document may have 16 MB; something is left for its other fields. */
const MAX_BYTES = 15 * 1024 * 1024;

export interface WriterOptions {
  tables: Tables;
  transactions: boolean;
  /** Throws when the collections have not been made: MongoDB would make them without indexes at the first insert. */
  requireSchema: () => Promise<void>;
}

/** Writes to the outbox in the caller's transaction, or on its own where there are none. */
export function createWriter({ tables, transactions, requireSchema }: WriterOptions): Writer<MongoTx> {
  async function written<T>(run: () => Promise<T>): Promise<T> {
    await requireSchema();
    try {
      return await run();
    } catch (error) {
      throw explain(error);
    }
  }

  return {
    async enqueue(tx, messages) {
      const session = sessionOf(tx, transactions);
      for (const message of messages) requireFitting(message, transactions);
      return written(async () => {
        const { first, now } = await nextPositions(tables.sequences, messages, session);
        const documents = messages.map((message, i) => documentOf(message, first + i, now));
        const inserted = await insert(tables, messages, documents, session);
        return messages.map(({ id, idChosen }) => ({ id, duplicate: idChosen && !inserted.has(id) }));
      });
    },
    async lockKey(tx, stream, key) {
      const session = requireSession(tx, transactions, "lockKey");
      const _id = sequenceId(stream, key);
      await written(() =>
        tables.sequences.updateOne(
          { _id },
          { $inc: { locks: 1 }, $currentDate: { at: true } },
          { ...scopeOf(session), upsert: true },
        ),
      );
    },
    async cancel(tx, id) {
      const session = sessionOf(tx, transactions);
      const ahead = { $expr: { $gt: ["$next_retry_at", "$$NOW"] } };
      const filter = { _id: id, status: "new", waits: "later", ...ahead };
      const { deletedCount } = await written(() => tables.outbox.raw.deleteOne(filter, scopeOf(session)));
      return deletedCount > 0;
    },
  };
}

/**
 * Writes documents in the order of their positions, which a change stream keeps. Those whose ids the caller chose are
 * written once; which of them were not there yet.
 */
async function insert(
  tables: Tables,
  messages: readonly PreparedMessage[],
  documents: readonly Document[],
  session: MongoSession | undefined,
): Promise<Set<unknown>> {
  if (messages.every(({ idChosen }) => !idChosen)) {
    if (documents.length > 0) await tables.outbox.insertMany(documents, scopeOf(session));
    return new Set();
  }
  const operations = documents.map((document, i) => {
    if (messages[i]?.idChosen !== true) return { insertOne: { document } };
    const { _id, ...fields } = document;
    return { updateOne: { filter: { _id }, update: { $setOnInsert: fields }, upsert: true } };
  });
  const inserted = new Set<unknown>();
  // Two writers outside transactions may both find nothing; the second to insert is told so, and finds it then.
  for (let attempt = 1; ; attempt++) {
    try {
      const { upsertedIds } = await tables.outbox.bulkWrite(operations, { ...scopeOf(session), ordered: true });
      for (const id of Object.values(upsertedIds)) inserted.add(id);
      return inserted;
    } catch (error) {
      if (session !== undefined || !isDuplicateKey(error) || attempt === 5) throw error;
      const { result } = error as { result?: { upsertedIds?: Record<number, unknown> } };
      for (const id of Object.values(result?.upsertedIds ?? {})) inserted.add(id);
    }
  }
}

function requireFitting({ size, idChosen }: PreparedMessage, transactions: boolean): void {
  if (size > MAX_BYTES) {
    throw new TxboxError("payload_too_large", `The message has ${size} bytes, a document holds ${MAX_BYTES}`, {
      field: "payload",
      fix: "Store the data elsewhere and enqueue a reference",
    });
  }
  if (transactions || idChosen) return;
  throw new TxboxError("invalid_message", "Without transactions a message needs an id that can be made again", {
    field: "id",
    fix: "Make it of the data, such as `page-1:revision-7`: then a reconciler can enqueue it again without harm",
  });
}

function requireSession(tx: MongoTx, transactions: boolean, what: string): MongoSession {
  const session = sessionOf(tx, transactions);
  if (session !== undefined) return session;
  throw new TxboxError("no_transaction", `${what} needs a transaction`, {
    field: "tx",
    fix: "Use a replica set and a store with transactions",
  });
}

function scopeOf(session: MongoSession | undefined): Document {
  return session === undefined ? {} : { session };
}
