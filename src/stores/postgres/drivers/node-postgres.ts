import { errorCode, TxboxError } from "../../../core/errors.ts";
import { textOf } from "../query-arguments.ts";
import { notYours, opensOrEnds } from "../transaction-control.ts";
import { guardTransaction, isGivenUp, type GuardedTransaction } from "../transaction-guard.ts";
import { checkOut } from "./check-out.ts";
import { copyOut } from "./copy-out.ts";
import { hasMethods, notATransaction } from "./driver.ts";
import type { ReplicationClient } from "../wal/replication-connection.ts";
import type { DriverDatabase, PostgresDriver, Row, ScriptRunner, TransactionRunner } from "./driver.ts";
import { foreignClient } from "./foreign-client.ts";

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

export const nodePostgres: PostgresDriver<PgPool, PgPoolClient> = {
  wants: "a pg.Pool",
  isClient: (value) =>
    hasMethods(value, "connect", "query") && !hasMethods(value, "exec") && (isPool(value) || isSingleClient(value)),
  open,
  runnerOf,
  openWith(tx, statement) {
    const opening = unopened.get(tx);
    return opening === undefined || opening.begun ? undefined : opening.beginWith(statement());
  },
};

function isPool(value: object): boolean {
  return "totalCount" in value;
}

/** Other libraries have `connect` and `query` too. */
export function isSingleClient(value: object): boolean {
  return hasMethods(value, "connect", "query") && ("processID" in value || hasMethods(value, "getTransactionStatus"));
}

function open(pool: PgPool): DriverDatabase<PgPoolClient> {
  if (!isPool(pool)) {
    throw new TxboxError("invalid_option", "createPostgresStore was given a single pg.Client", {
      field: "client",
      fix: "Pass a pg.Pool: the relay reads, settles and runs handlers side by side",
    });
  }
  outliveIdleLosses(pool);
  const replication = replicationOf(pool);
  return {
    ...runner(pool),
    ...(replication === undefined ? {} : { replication }),
    copy: (text, onRow, signal) => copyOut(pool, text, onRow, signal),
    single: false,
    transaction: (run) =>
      transaction(pool, async (opening) => {
        await opening.begin();
        return run(opening.guard.tx, runner(opening.client));
      }),
    lazyTransaction: (run) =>
      transaction(pool, (opening) => {
        const { tx } = opening.guard;
        unopened.set(tx, opening);
        return run(tx);
      }),
  };
}

/** Connects as the clients of the pool do. */
function replicationOf(pool: PgPool): (() => ReplicationClient) | undefined {
  const { Client, options } = pool as PgPool & {
    Client?: new (options: object) => ReplicationClient;
    options?: object;
  };
  if (typeof Client !== "function" || typeof options !== "object") return undefined;
  return () => {
    // The password is not enumerable.
    const own = Object.defineProperties({}, Object.getOwnPropertyDescriptors(options));
    return new Client(Object.assign(own, { replication: "database", query_timeout: 0, keepAlive: true }));
  };
}

const asText = { getTypeParser: () => (value: string) => value };

function runner(client: PgClient | PgPool): ScriptRunner {
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

const runners = new WeakMap<object, TransactionRunner & { mayAutocommit: boolean }>();

function runnerOf(value: object): TransactionRunner | undefined {
  let known = runners.get(value);
  if (known === undefined) {
    if (!hasMethods(value, "query") || hasMethods(value, "exec") || foreignClient(value) !== undefined)
      return undefined;
    if ("totalCount" in value) throw notATransaction("a pg.Pool", "Check out a client, BEGIN, and pass that client");
  }
  const client = value as PgClient;
  const status = client.getTransactionStatus?.();
  if (status === "I") throw notATransaction("a client outside a transaction", "Run BEGIN on it first");
  if (isEnding(client)) {
    throw notATransaction("a client whose transaction is ending", "Await enqueue before COMMIT or ROLLBACK");
  }
  if (known === undefined) runners.set(client, (known = { ...runner(client), mayAutocommit: true }));
  known.mayAutocommit = status !== "T";
  return known;
}

/** From 8.17 on with an underscore; without it there they warn. */
interface Busy extends PgClient {
  readonly _activeQuery?: object | null;
  readonly _queryQueue?: readonly object[];
  readonly activeQuery?: object | null;
  readonly queryQueue?: readonly object[];
}

/** Queries that neither begin nor end a transaction. */
const harmless = new WeakSet<object>();

/** The status is that before the queries that the server has not answered yet, and COMMIT may be among them. */
function isEnding(client: Busy): boolean {
  const known = "_queryQueue" in client;
  const active = known ? client._activeQuery : client.activeQuery;
  const queue = known ? client._queryQueue : client.queryQueue;
  let ending = false;
  for (const query of [active, ...(Array.isArray(queue) ? (queue as object[]) : [])]) {
    if (query == null || harmless.has(query)) continue;
    const found = opensOrEnds(textOf(query));
    if (found === undefined) harmless.add(query);
    else ending = found === "ends";
  }
  return ending;
}

const heard = new WeakSet<PgPool>();

/**
 * An idle connection that is cut ends the process, unless the pool has an error listener. The pool has dropped it by
 * then.
 */
function outliveIdleLosses(pool: PgPool): void {
  if (heard.has(pool)) return;
  heard.add(pool);
  pool.on?.("error", () => undefined);
}

/** Transactions whose BEGIN may still wait for the first statement, by the `tx` of their user. */
const unopened = new WeakMap<object, Opening>();

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

  /** The text carries its values as literals. */
  async beginWith(statement: string): Promise<number> {
    this.begun = true;
    const text = `begin; ${statement}`;
    this.guard.lastText = text;
    const [, result] = (await this.client.query(text)) as { rowCount: number | null }[];
    return result?.rowCount ?? 0;
  }
}

async function transaction<T>(pool: PgPool, run: (opening: Opening) => Promise<T>): Promise<T> {
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
 * A server notices only at the end of the query that its client has gone, and keeps the receipt locked until then.
 * Behind a connection pooler the id may belong to no session or to another client's: hence the query must be the same.
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
