import { TxboxError } from "../../core/errors.ts";
import type { SqlTransaction } from "../../core/sql-transaction.ts";
import { valueKind } from "../../core/value-kind.ts";
import type { BridgedStatements, PostgresBridge } from "./bridges/bridge.ts";
import { isBridge } from "./bridges/bridge.ts";
import { prepareLending } from "./bridges/lending.ts";
import { transactionUnder } from "./bridges/bridged-transaction.ts";
import { notATransaction } from "./drivers/driver.ts";
import type { CopyRunner, DriverDatabase, TransactionRunner } from "./drivers/driver.ts";
import { foreignClient, foreignUrl } from "./drivers/foreign-client.ts";
import { DRIVERS } from "./drivers/index.ts";
import type { PgClient, PgPool } from "./drivers/node-postgres.ts";
import type { Pglite, PgliteTx } from "./drivers/pglite.ts";
import type { PostgresJs, PostgresJsTx } from "./drivers/postgres-js.ts";

export { notATransaction } from "./drivers/driver.ts";
export type { CopyRunner, Row, ScriptRunner, SqlRunner } from "./drivers/driver.ts";
export type { PgClient, PgPool } from "./drivers/node-postgres.ts";
export type { Pglite, PgliteTx } from "./drivers/pglite.ts";
export type { PostgresJs, PostgresJsTx } from "./drivers/postgres-js.ts";
export type { BridgedStatements, PostgresBridge } from "./bridges/bridge.ts";

/** The client that the user built. */
export type PostgresClient = PgPool | PostgresJs | Pglite;
/** The transaction that the user opened, on the same driver. */
export type PostgresTx = PgClient | PostgresJsTx | PgliteTx;

/** The own type of a transaction of the driver or the library, so that handlers see what they know. */
export type TransactionOf<Client> = [Client] extends [PostgresBridge<infer Tx, infer _>]
  ? Tx
  : unknown extends InferTransaction<Client>
    ? SqlTransaction
    : InferTransaction<Client>;

/** What a library's store takes beside the transactions of drivers. */
export type TakenBy<Client> = [Client] extends [PostgresBridge<infer _, infer Taken>] ? Taken : never;

// Overloads are matched from the last one: `connect` of a pg.Pool and `begin` of postgres.js have two each.
type InferTransaction<Client> = Client extends { connect: { (): Promise<infer Tx>; (callback: never): unknown } }
  ? Tx
  : Client extends { begin: (options: never, run: (tx: infer Tx) => never) => unknown }
    ? Tx
    : Client extends { transaction: (run: (tx: infer Tx) => never) => unknown }
      ? Tx
      : unknown;

/** The user's client behind one interface, whatever its driver can do. */
export type Database = Required<Omit<DriverDatabase<PostgresTx>, "replication">> &
  Pick<DriverDatabase<PostgresTx>, "replication"> &
  CopyRunner;

const cannotCopy = (): Promise<undefined> => Promise.resolve(undefined);

/** The library that was passed as the client, or undefined for a client of a driver. */
export function bridgeOf(client: PostgresClient | PostgresBridge): PostgresBridge | undefined {
  return isObject(client) && isBridge(client) ? client : undefined;
}

/** Finds the driver of a client, or of the client of a library, by its shape. */
export function databaseOf(client: PostgresClient | PostgresBridge): Database {
  const bridge = bridgeOf(client);
  if (bridge !== undefined) {
    const database = databaseOf(bridge.client);
    prepareLending(bridge.client);
    return database;
  }
  const foreign = isObject(client) ? foreignClient(client) : foreignUrl(client);
  const driver = isObject(client) && !foreign ? DRIVERS.find((one) => one.isClient(client)) : undefined;
  if (driver === undefined) {
    const wanted = DRIVERS.map(({ wants }) => wants);
    throw new TxboxError(
      "invalid_option",
      `createPostgresStore needs a client, got ${foreign?.name ?? valueKind(client)}`,
      {
        field: "client",
        fix: foreign?.fixClient ?? `Pass ${wanted.slice(0, -1).join(", ")} or ${wanted.at(-1)}`,
      },
    );
  }
  const database = driver.open(client as never) as DriverDatabase<PostgresTx>;
  return { copy: cannotCopy, lazyTransaction: (run) => database.transaction(run), ...database };
}

/** The user's transaction as a runner. Refuses what is visibly not a transaction. */
export function transactionRunner(tx: PostgresTx, bridge?: PostgresBridge): TransactionRunner {
  if (!isObject(tx)) throw notATransaction(valueKind(tx), "Pass the transaction that writes your own data");
  const bridged = bridge?.statementsOf(tx);
  if (bridged !== undefined) return "driver" in bridged ? transactionRunner(bridged.driver) : bridgedRunner(bridged);
  for (const driver of DRIVERS) {
    const runner = driver.runnerOf(tx);
    if (runner !== undefined) return runner;
  }
  const foreign = foreignClient(tx);
  throw foreign === undefined
    ? notATransaction(valueKind(tx), "Pass the transaction that writes your own data")
    : notATransaction(foreign.name, foreign.fixTransaction);
}

/** The driver's transaction under the one that a handler was given, where that is of a library. */
export function driverTransaction(tx: PostgresTx): PostgresTx {
  return (transactionUnder(tx) as PostgresTx | undefined) ?? tx;
}

/** A library refuses a transaction that has ended, but few know while COMMIT is under way. It may serialise parameters anew. */
function bridgedRunner(bridged: Exclude<BridgedStatements, { driver: unknown }>): TransactionRunner {
  return {
    sendsText: false,
    mayAutocommit: true,
    query: async (sql, params = []) =>
      (await bridged.rows(sql, params)).map((row) =>
        Object.values(row as Record<string, string | number | null>).map(textOf),
      ),
    affect: (sql, params) => bridged.count(sql, params),
    exec: async (script) => void (await bridged.count(script, [])),
  };
}

/** Our statements give texts and numbers back to writers. */
function textOf(value: string | number | null): string | null {
  return value === null ? null : String(value);
}

/**
 * Begins a transaction and runs its first statement in one round trip, where nothing has gone through it yet. The text
 * carries its values as literals. How many rows it wrote; undefined when the caller has to run it by itself.
 */
export function openWith(tx: PostgresTx, statement: () => string): Promise<number> | undefined {
  for (const driver of DRIVERS) {
    const opened = driver.openWith?.(tx, statement);
    if (opened !== undefined) return opened;
  }
  return undefined;
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
