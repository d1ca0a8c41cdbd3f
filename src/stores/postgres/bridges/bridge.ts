import type { PgClient, PgPool } from "../drivers/node-postgres.ts";
import type { Pglite, PgliteTx } from "../drivers/pglite.ts";
import type { PostgresJs, PostgresJsTx } from "../drivers/postgres-js.ts";
import { hasMethods } from "../drivers/driver.ts";

/** How statements run in a transaction that the library opened. Parameters are text or null, as `$1`, `$2`, …. */
export type BridgedStatements =
  /** The transaction of the driver under it. */
  | { readonly driver: PgClient | PostgresJsTx | PgliteTx }
  | {
      /** The rows, with the columns of each in order. */
      rows(text: string, params: readonly (string | null)[]): Promise<readonly object[]>;
      /** How many rows were written; 0 for a CALL. */
      count(text: string, params: readonly (string | null)[]): Promise<number>;
    };

/**
 * An ORM or a query builder in front of a client: `createPostgresStore` takes it as its `client`. Then `enqueue` takes the
 * library's own transactions, `Taken`, and handlers get one, `Tx`.
 */
export interface PostgresBridge<Tx extends object = object, Taken extends object = Tx> {
  /** For errors: "Drizzle". */
  readonly library: string;
  /** What txbox runs its own statements on: best the pool that the library takes its connections from. */
  readonly client: PgPool | PostgresJs | Pglite;
  /**
   * Runs `run` in a transaction of the library, on the connection of a transaction that txbox has begun. A library that asks
   * `client` for a connection meanwhile is given it; any other has to be handed `connection`. Its BEGIN is left out; its
   * COMMIT is answered when txbox has committed.
   */
  transaction<T>(run: (tx: Tx) => Promise<T>, connection: object): Promise<T>;
  /**
   * Undefined: the value is not of this library. Throws `notATransaction(…)` for what is of this library and no open
   * transaction.
   */
  statementsOf(value: object): BridgedStatements | undefined;
  /** Never there: it carries a type. */
  readonly takes?: Taken;
}

export function isBridge(value: object): value is PostgresBridge {
  return hasMethods(value, "transaction", "statementsOf") && "library" in value && "client" in value;
}
