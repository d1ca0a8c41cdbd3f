import { TxboxError } from "../../../core/errors.ts";
import type { ReplicationClient } from "../wal/replication-connection.ts";

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

/** Runs statements in a transaction of the user. */
export interface TransactionRunner extends ScriptRunner {
  /** It is not certain that a transaction is open when a statement gets there: the server has to be asked. */
  readonly mayAutocommit: boolean;
}

/** A client of the user: statements that commit by themselves, and transactions. */
export interface DriverDatabase<Tx> extends ScriptRunner {
  /** One connection for everything: nothing runs beside a transaction. */
  readonly single: boolean;
  /** A client of its own for the server's replication protocol, not connected yet. Missing where the driver has none. */
  readonly replication?: () => ReplicationClient;
  /** Missing where the driver has no COPY. */
  readonly copy?: CopyRunner["copy"];
  /** Commits when `run` resolves. What comes later through its `tx` is refused. */
  transaction<T>(run: (tx: Tx, sql: ScriptRunner) => Promise<T>): Promise<T>;
  /** The same with a BEGIN that travels with the first statement, see `openWith`. Missing where the driver cannot. */
  lazyTransaction?<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
}

/**
 * A library through which txbox reaches PostgreSQL. Clients and transactions are recognised by their structure; of any
 * value at most one driver says that it is its own. A new driver is a file in this folder and a line in `index.ts`.
 */
export interface PostgresDriver<Client extends object = never, Tx extends object = object> {
  /** What to pass to createPostgresStore, for errors: "a pg.Pool". */
  readonly wants: string;
  isClient(value: object): boolean;
  /** Throws `invalid_option` for a client of this driver that cannot serve. */
  open(client: Client): DriverDatabase<Tx>;
  /** Undefined: not of this driver. Throws `no_transaction` for what is of this driver and visibly no transaction. */
  runnerOf(value: object): TransactionRunner | undefined;
  /**
   * Begins the transaction of a `lazyTransaction` and runs its first statement in one round trip; how many rows it wrote.
   * Undefined: the statement was not run, and the caller has to run it by itself.
   */
  openWith?(tx: object, statement: () => string): Promise<number> | undefined;
}

export function notATransaction(got: string, fix: string): TxboxError {
  return new TxboxError("no_transaction", `A transaction is needed, got ${got}`, { field: "tx", fix });
}

/** Whether each of these is a method of the value; false for one that cannot be read. */
export function hasMethods(value: object, ...names: readonly string[]): boolean {
  try {
    return names.every((name) => typeof Reflect.get(value, name) === "function");
  } catch {
    // A proxy or a getter that throws.
    return false;
  }
}
