import { TxboxError } from "../../core/errors.ts";

/** Your own MongoClient, of the official driver or of mongoose (`mongoose.connection.getClient()`). */
export interface MongoClientLike {
  db(name?: string): object;
  startSession(): MongoSession;
  connect?(): Promise<unknown>;
}

/** A ClientSession of the driver; mongoose hands out the same. */
export interface MongoSession {
  inTransaction(): boolean;
  endSession(): Promise<void>;
}

/** The session type of a client: what handlers get as their transaction. */
export type SessionOf<Client extends MongoClientLike> = ReturnType<Client["startSession"]>;

/** The first argument of `enqueue` on a store made with `transactions: false`. */
export interface WithoutTransaction {
  readonly txbox: "without transaction";
}

/**
 * Says that a message is written on its own, after the data it is about. Such a message needs an id that can be made
 * again from the data, so that a reconciler can enqueue what a crash left out.
 */
export const WITHOUT_TRANSACTION: WithoutTransaction = { txbox: "without transaction" };

export type MongoTx = MongoSession | WithoutTransaction;

export type Document = Record<string, unknown>;

export interface UpdateResult {
  matchedCount: number;
  modifiedCount: number;
  upsertedCount: number;
}

interface RawCursor {
  toArray(): Promise<Document[]>;
  close(): Promise<void>;
  [Symbol.asyncIterator](): AsyncIterator<Document>;
}

export interface RawChangeStream extends AsyncIterable<unknown> {
  tryNext(): Promise<unknown>;
  close(): Promise<void>;
}

/** The part of the driver's Collection that is used here. */
export interface RawCollection {
  readonly collectionName: string;
  find(filter: Document, options?: Document): RawCursor;
  findOne(filter: Document, options?: Document): Promise<Document | null>;
  aggregate(pipeline: Document[], options?: Document): RawCursor;
  insertOne(document: Document, options?: Document): Promise<unknown>;
  insertMany(documents: readonly Document[], options?: Document): Promise<unknown>;
  updateOne(filter: Document, update: Document | Document[], options?: Document): Promise<UpdateResult>;
  updateMany(filter: Document, update: Document | Document[], options?: Document): Promise<UpdateResult>;
  findOneAndUpdate(filter: Document, update: Document | Document[], options?: Document): Promise<Document | null>;
  deleteOne(filter: Document, options?: Document): Promise<{ deletedCount: number }>;
  deleteMany(filter: Document, options?: Document): Promise<{ deletedCount: number }>;
  bulkWrite(
    operations: readonly Document[],
    options?: Document,
  ): Promise<{ matchedCount: number; upsertedIds: Record<number, unknown> }>;
  countDocuments(filter: Document, options?: Document): Promise<number>;
  indexes(): Promise<Document[]>;
  createIndexes(specs: Document[]): Promise<unknown>;
  dropIndex(name: string): Promise<unknown>;
  watch(pipeline: Document[], options?: Document): RawChangeStream;
}

export interface RawDb {
  collection(name: string, options?: Document): RawCollection;
  createCollection(name: string): Promise<unknown>;
  command(command: Document, options?: Document): Promise<Document>;
}

/** However the client is set up, txbox reads from the primary, plain values, and waits for a majority. */
export const READ_OPTIONS: Document = {
  promoteLongs: true,
  promoteValues: true,
  promoteBuffers: true,
  useBigInt64: false,
  ignoreUndefined: true,
};

const COLLECTION_OPTIONS: Document = {
  readPreference: "primary",
  readConcern: { level: "local" },
  writeConcern: { w: "majority" },
  ...READ_OPTIONS,
};

export interface Database {
  readonly client: MongoClientLike;
  readonly db: RawDb;
  collection(name: string): RawCollection;
  startSession(options: Document): MongoSession;
}

export function databaseOf(client: MongoClientLike, name: string | undefined): Database {
  if (typeof client?.db !== "function" || typeof client.startSession !== "function") {
    throw new TxboxError("invalid_option", "createMongoStore needs a client", {
      field: "client",
      fix: "Pass { client: new MongoClient(url) }, or mongoose.connection.getClient()",
    });
  }
  const db = client.db(name) as unknown as RawDb;
  const startSession = client.startSession.bind(client) as (options: Document) => MongoSession;
  return { client, db, collection: (of) => db.collection(of, COLLECTION_OPTIONS), startSession };
}

/** The session to write with: undefined when the store works without transactions. */
export function sessionOf(tx: MongoTx, transactions: boolean): MongoSession | undefined {
  if (isWithoutTransaction(tx)) {
    if (!transactions) return undefined;
    throw new TxboxError("no_transaction", "This store writes in transactions only", {
      field: "tx",
      fix: "Pass the session of your transaction, or create the store with transactions: false",
    });
  }
  if (typeof tx?.inTransaction !== "function") {
    throw new TxboxError("no_transaction", "The transaction is not a session of the MongoDB driver", {
      field: "tx",
      fix: "Call client.withSession((session) => session.withTransaction(() => outbox.enqueue(session, message)))",
    });
  }
  if (!transactions) {
    throw new TxboxError("no_transaction", "This store was created with transactions: false", {
      field: "tx",
      fix: "Write your data first, then enqueue(WITHOUT_TRANSACTION, message)",
    });
  }
  if (!tx.inTransaction()) {
    throw new TxboxError("no_transaction", "The session has no transaction open", {
      field: "tx",
      fix: "Enqueue inside session.withTransaction(…), with the session that writes your own data",
    });
  }
  return tx;
}

function isWithoutTransaction(tx: MongoTx): tx is WithoutTransaction {
  return typeof tx === "object" && tx !== null && "txbox" in tx;
}
