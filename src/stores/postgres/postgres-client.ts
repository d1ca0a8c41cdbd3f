import { errorCode, TxboxError } from "../../core/errors.ts";
import type { SqlTransaction } from "../../core/sql-transaction.ts";
import { valueKind } from "../../core/value-kind.ts";
import { beginPostgresJs } from "./begin-postgres-js.ts";
import { beginPglite, refuseSelfWait } from "./begin-pglite.ts";
import { checkOut } from "./check-out.ts";
import { copyOut } from "./copy-out.ts";
import { notYours } from "./transaction-control.ts";
import { guardTransaction, isGivenUp, type GuardedTransaction } from "./transaction-guard.ts";

/** A row as an array of text, as the server sent it. */
export type Row = (string | null)[];

/** Runs one statement; parameters are text and the SQL casts them (`$1::text::bigint`). */
export interface SqlRunner {
  query(text: string, params?: readonly (string | null)[]): Promise<Row[]>;
}

/** Reads in bulk as well. */
export interface CopyRunner extends SqlRunner {
  /**
   * A COPY to stdout, row by row as they arrive; in the end how many there were. Undefined, and nothing was run: the driver
   * has no such thing.
   */
  copy(text: string, onRow: (message: Buffer) => void, signal?: AbortSignal): Promise<number | undefined>;
}

/** Runs also statements of which only the number of rows matters, and scripts, which take no parameters. */
export interface ScriptRunner extends SqlRunner {
  /** The driver sends a text as it is, whatever the type of the parameter. */
  readonly sendsText: boolean;
  /** How many rows were written: cheaper than RETURNING. */
  affect(text: string, params: readonly (string | null)[]): Promise<number>;
  exec(script: string): Promise<void>;
}

/** node-postgres: what a transaction runs on. */
export interface PgClient {
  query(config: object): Promise<unknown>;
  getTransactionStatus?(): string | null;
  /** A pool is no transaction. */
  readonly totalCount?: never;
}

export interface PgPoolClient extends PgClient {
  readonly processID?: number | null;
  query(textOrConfig: string | object): Promise<unknown>;
  release(error?: Error | boolean): void;
  on(event: "error", listener: (error?: Error) => void): unknown;
  removeListener(event: "error", listener: (error?: Error) => void): unknown;
}

/** node-postgres: `new pg.Pool()`. */
export interface PgPool {
  query(config: object): Promise<unknown>;
  connect(): Promise<PgPoolClient>;
  on?(event: "error", listener: () => void): unknown;
  readonly totalCount: number;
}

/** postgres.js: inside `sql.begin(async (tx) => …)`. */
export interface PostgresJsTx {
  unsafe(text: string, params?: never[], options?: object): unknown;
  savepoint: unknown;
}

/** postgres.js: `postgres(url)`. */
export interface PostgresJs {
  unsafe(text: string, params?: never[], options?: object): unknown;
  begin(run: (tx: PostgresJsTx) => unknown): Promise<unknown>;
}

/** PGlite: inside `db.transaction(async (tx) => …)`. */
export interface PgliteTx {
  query(text: string, params?: unknown[], options?: object): Promise<unknown>;
  exec(text: string): Promise<unknown>;
  rollback(): Promise<void>;
}

/** PGlite: `new PGlite()`. */
export interface Pglite {
  query(text: string, params?: unknown[], options?: object): Promise<unknown>;
  exec(text: string): Promise<unknown>;
  transaction(run: (tx: PgliteTx) => Promise<unknown>): Promise<unknown>;
  readonly waitReady: Promise<void>;
}

/** The client that the user built. */
export type PostgresClient = PgPool | PostgresJs | Pglite;
/** The transaction that the user opened, on the same driver. */
export type PostgresTx = PgClient | PostgresJsTx | PgliteTx;

/** The driver's own type of a transaction, so that handlers see what they know. */
export type TransactionOf<Client> =
  unknown extends InferTransaction<Client> ? SqlTransaction : InferTransaction<Client>;

// Overloads are matched from the last one: `connect` of a pg.Pool and `begin` of postgres.js have two each.
type InferTransaction<Client> = Client extends { connect: { (): Promise<infer Tx>; (callback: never): unknown } }
  ? Tx
  : Client extends { begin: (options: never, run: (tx: infer Tx) => never) => unknown }
    ? Tx
    : Client extends { transaction: (run: (tx: infer Tx) => never) => unknown }
      ? Tx
      : unknown;

/** The user's client behind one face: statements that commit by themselves, and transactions. */
export interface Database extends ScriptRunner, CopyRunner {
  /** Commits when `run` resolves. What comes later through its `tx` is refused. */
  transaction<T>(run: (tx: PostgresTx, sql: ScriptRunner) => Promise<T>): Promise<T>;
  /** The same, but where the driver allows it BEGIN travels with the first statement: see `openWith`. */
  lazyTransaction<T>(run: (tx: PostgresTx) => Promise<T>): Promise<T>;
  /** One connection for everything: nothing runs beside a transaction. */
  readonly single: boolean;
}

const asText = { getTypeParser: () => (value: string) => value };
// PGlite copies the parsers it is given by their own keys, so every type that our statements return is named by its oid:
// bool bytea char name int8 int2 int4 text oid json float4 float8 bpchar varchar date timestamp timestamptz numeric uuid
// jsonb pg_snapshot xid8, then the arrays of bool bytea int2 int4 text varchar int8 float8 oid timestamptz json jsonb xid8.
const PGLITE_TYPES = [
  16, 17, 18, 19, 20, 21, 23, 25, 26, 114, 700, 701, 1042, 1043, 1082, 1114, 1184, 1700, 2950, 3802, 5038, 5069, 1000,
  1001, 1005, 1007, 1009, 1015, 1016, 1022, 1028, 1185, 199, 3807, 271,
];
const textParsers: object = Object.fromEntries(PGLITE_TYPES.map((oid) => [oid, (value: string) => value]));

function pgRunner(client: PgClient | PgPool): ScriptRunner {
  return {
    sendsText: true,
    async query(text, params = []) {
      const result = await client.query({ text, values: params, rowMode: "array", types: asText });
      return (result as { rows: Row[] }).rows;
    },
    async affect(text, params) {
      const result = await client.query({ text, values: params });
      return (result as { rowCount: number | null }).rowCount ?? 0;
    },
    async exec(script) {
      await client.query({ text: script });
    },
  };
}

function postgresJsRunner(sql: PostgresJsTx | PostgresJs): ScriptRunner {
  return {
    sendsText: false,
    async query(text, params = []) {
      const pending = sql.unsafe(text, params as never[], { prepare: false }) as {
        raw(): Promise<(Buffer | null)[][]>;
      };
      const rows = await pending.raw();
      return Array.from(rows, (row) => row.map((value) => (value === null ? null : value.toString())));
    },
    async affect(text, params) {
      const result = await (sql.unsafe(text, params as never[], { prepare: false }) as Promise<{
        count: number | null;
      }>);
      return result.count ?? 0;
    },
    async exec(script) {
      await (sql.unsafe(script) as { simple(): Promise<unknown> }).simple();
    },
  };
}

function pgliteRunner(client: PgliteTx | Pglite): ScriptRunner {
  return {
    sendsText: false,
    async query(text, params = []) {
      const result = await client.query(text, [...params], { rowMode: "array", parsers: textParsers });
      return (result as { rows: Row[] }).rows;
    },
    async affect(text, params) {
      const result = await client.query(text, [...params]);
      return (result as { affectedRows?: number }).affectedRows ?? 0;
    },
    async exec(script) {
      await client.exec(script);
    },
  };
}

/** Recognises node-postgres, postgres.js and PGlite by their shape. */
export function databaseOf(client: PostgresClient): Database {
  if (isObject(client)) {
    if ("unsafe" in client && "begin" in client) return postgresJsDatabase(client);
    if ("exec" in client && "transaction" in client) return pgliteDatabase(client);
    if ("connect" in client && "totalCount" in client) return pgDatabase(client);
    if ("connect" in client && "query" in client) {
      throw new TxboxError("invalid_option", "createPostgresStore was given a single pg.Client", {
        field: "client",
        fix: "Pass a pg.Pool: the relay reads, settles and runs handlers side by side",
      });
    }
  }
  throw new TxboxError("invalid_option", "createPostgresStore needs a client", {
    field: "client",
    fix: "Pass a pg.Pool, a postgres.js instance or a PGlite instance",
  });
}

function pgDatabase(pool: PgPool): Database {
  outliveIdleLosses(pool);
  return {
    ...pgRunner(pool),
    copy: (text, onRow, signal) => copyOut(pool, text, onRow, signal),
    single: false,
    transaction: (run) =>
      pgTransaction(pool, async (opening) => {
        await opening.begin();
        return run(opening.guard.tx, pgRunner(opening.client));
      }),
    lazyTransaction: (run) =>
      pgTransaction(pool, (opening) => {
        const { tx } = opening.guard;
        unopened.set(tx, opening);
        return run(tx);
      }),
  };
}

const heard = new WeakSet<PgPool>();

/** A connection that is cut while it lies idle ends the process, unless somebody listens. The pool has dropped it by then. */
function outliveIdleLosses(pool: PgPool): void {
  if (heard.has(pool)) return;
  heard.add(pool);
  pool.on?.("error", () => undefined);
}

/** Transactions whose BEGIN may still wait for the first statement, by the `tx` of their user. */
const unopened = new WeakMap<object, Opening>();

/**
 * Begins a transaction and runs its first statement in one round trip, where nothing has gone through it yet. The text
 * carries its values as literals. How many rows it wrote; undefined when the caller has to run it by itself.
 */
export function openWith(tx: PostgresTx, statement: () => string): Promise<number> | undefined {
  const opening = unopened.get(tx);
  return opening === undefined || opening.begun ? undefined : opening.beginWith(statement());
}

/** The begin of a transaction: at the latest with the first call of its user. */
class Opening {
  readonly client: PgPoolClient;
  readonly guard: GuardedTransaction<PgPoolClient>;
  begun = false;

  constructor(client: PgPoolClient) {
    this.client = client;
    // A client runs its queries in the order they were given to it; without a connection the next one fails as well.
    this.guard = guardTransaction(client, () => void (this.begun || this.begin().catch(() => undefined)));
  }

  begin(): Promise<unknown> {
    this.begun = true;
    return this.client.query("begin");
  }

  async beginWith(statement: string): Promise<number> {
    this.begun = true;
    const text = `begin; ${statement}`;
    this.guard.lastText = text;
    const [, result] = (await this.client.query(text)) as { rowCount: number | null }[];
    return result?.rowCount ?? 0;
  }
}

async function pgTransaction<T>(pool: PgPool, run: (opening: Opening) => Promise<T>): Promise<T> {
  let broken = false;
  let givenUp = false;
  let lost: Error | undefined;
  const onError = (error?: Error): void => {
    broken = true;
    lost ??= error;
  };
  const client = await checkOut(pool, onError);
  const opening = new Opening(client);
  const { guard } = opening;
  try {
    const result = await run(opening);
    guard.close();
    if (opening.begun) await commit(client);
    return result;
  } catch (error) {
    guard.close();
    // A handler that timed out may still hold the client: never give it back to the pool.
    givenUp = isGivenUp(error);
    broken ||= givenUp;
    if (!broken && opening.begun) await client.query("rollback").catch(() => (broken = true));
    // "Not queryable" says nothing; why the server ended the session came by itself.
    throw lost !== undefined && errorCode(error) === undefined ? lost : error;
  } finally {
    client.release(broken);
    if (!broken) client.removeListener("error", onError);
    if (givenUp) await terminate(pool, client.processID, guard.lastText);
  }
}

/**
 * A server notices that its client has gone when the query ends, and until then keeps the receipt locked. Behind a
 * connection pooler the id is nobody's or, at worst, a stranger's: hence the query must be the same.
 */
async function terminate(pool: PgPool, processId: number | null | undefined, query = ""): Promise<void> {
  if (processId == null || query === "") return;
  const text = `select pg_catalog.pg_terminate_backend(pid) from pg_stat_activity
    where pid = $1::text::int and datname = pg_catalog.current_database() and state = 'active' and pg_catalog.starts_with(query, $2::text)`;
  const values = [String(processId), query.slice(0, COMPARED)];
  // The handler's failure is what counts.
  await pool.query({ text, values }).catch(() => undefined);
}

/** Well within what pg_stat_activity shows of a query. */
const COMPARED = 200;

/** An aborted transaction answers COMMIT with ROLLBACK, and no error. */
async function commit(client: PgPoolClient): Promise<void> {
  const status = client.getTransactionStatus?.() ?? "T";
  if (status === "I") throw notYours("COMMIT or ROLLBACK");
  const { command } = (await client.query("commit")) as { command: string };
  if (command === "COMMIT") return;
  const message = "The handler swallowed an SQL error; its transaction was rolled back";
  throw Object.assign(new Error(`${message}. Use a savepoint around a statement that may fail`), { code: "25P02" });
}

const cannotCopy = (): Promise<undefined> => Promise.resolve(undefined);

function postgresJsDatabase(client: PostgresJs): Database {
  const transaction = <T>(run: (tx: PostgresTx, sql: ScriptRunner) => Promise<T>): Promise<T> =>
    beginPostgresJs(client, (tx, raw) => run(tx, postgresJsRunner(raw)));
  return { ...postgresJsRunner(client), copy: cannotCopy, single: false, transaction, lazyTransaction: transaction };
}

function pgliteDatabase(client: Pglite): Database {
  refuseSelfWait(client);
  const transaction = <T>(run: (tx: PostgresTx, sql: ScriptRunner) => Promise<T>): Promise<T> =>
    beginPglite(client, (tx, raw) => run(tx, pgliteRunner(raw)));
  return { ...pgliteRunner(client), copy: cannotCopy, single: true, transaction, lazyTransaction: transaction };
}

const pgRunners = new WeakMap<PgClient, ScriptRunner & { mayAutocommit: boolean }>();

/** The user's transaction as a runner. Refuses what is visibly not a transaction. */
export function transactionRunner(tx: PostgresTx): ScriptRunner & { mayAutocommit: boolean } {
  if (isObject(tx)) {
    if ("unsafe" in tx) {
      if ("savepoint" in tx) return { ...postgresJsRunner(tx), mayAutocommit: false };
      throw notATransaction("the postgres.js instance", "Pass the `tx` of sql.begin(async (tx) => …)");
    }
    if ("exec" in tx && "query" in tx) {
      if ("rollback" in tx) return { ...pgliteRunner(tx), mayAutocommit: false };
      throw notATransaction("the PGlite instance", "Pass the `tx` of db.transaction(async (tx) => …)");
    }
    if ("totalCount" in tx) throw notATransaction("a pg.Pool", "Check out a client, BEGIN, and pass that client");
    if ("query" in tx && typeof tx.query === "function") {
      const status = tx.getTransactionStatus?.();
      if (status === "I") throw notATransaction("a client outside a transaction", "Run BEGIN on it first");
      let known = pgRunners.get(tx);
      if (known === undefined) pgRunners.set(tx, (known = { ...pgRunner(tx), mayAutocommit: true }));
      known.mayAutocommit = status !== "T";
      return known;
    }
  }
  throw notATransaction(valueKind(tx), "Pass the transaction that writes your own data");
}

export function notATransaction(got: string, fix: string): TxboxError {
  return new TxboxError("no_transaction", `A transaction is needed, got ${got}`, { field: "tx", fix });
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

/** A text array literal, for `$1::text::text[]`. */
export function textArray(values: readonly string[]): string {
  return `{${values.map((value) => `"${value.replace(/["\\]/g, "\\$&")}"`).join(",")}}`;
}

/** A text as a literal; with a backslash in it, one that means the same under every setting. */
export function literal(text: string): string {
  const quoted = `'${text.replaceAll("'", "''")}'`;
  return quoted.includes("\\") ? ` E${quoted.replaceAll("\\", "\\\\")}` : quoted;
}

/** The same for numbers and other values that need no quoting. */
export function plainArray(values: readonly (number | bigint | string)[]): string {
  return `{${values.join(",")}}`;
}
