import { TxboxError } from "../../../core/errors.ts";
import { shownValue, valueKind } from "../../../core/value-kind.ts";
import { hasMethods, notATransaction } from "../drivers/driver.ts";
import type { PgPool } from "../drivers/node-postgres.ts";
import type { PostgresBridge } from "./bridge.ts";

/** TypeORM on node-postgres: a `DataSource` of the type "postgres", initialised. */
export interface TypeormDataSource<Manager, Runner> {
  readonly driver: object;
  readonly manager: Manager;
  createQueryRunner(): Runner;
}

interface TransactionSource<Manager> {
  transaction<T>(run: (manager: Manager) => Promise<T>): Promise<T>;
}

interface QueryRunner {
  readonly isTransactionActive: boolean;
  query(text: string, params: readonly unknown[], structured: true): Promise<{ records: object[]; affected?: number }>;
}

/**
 * `enqueue` takes the `manager` of `dataSource.transaction(async (manager) => …)`, or a query runner whose transaction is
 * open, and handlers get the former.
 */
export function fromTypeorm<Manager extends object, Runner extends object>(
  dataSource: TypeormDataSource<Manager, Runner>,
): PostgresBridge<Manager, Manager | Runner> {
  const pool = hasMethods(dataSource, "transaction", "createQueryRunner") ? poolOf(dataSource) : undefined;
  if (pool === undefined) {
    throw new TxboxError(
      "invalid_option",
      `fromTypeorm needs an initialised DataSource on PostgreSQL, got ${kindOf(dataSource)}`,
      { field: "dataSource", fix: 'Pass await new DataSource({ type: "postgres", … }).initialize()' },
    );
  }
  return {
    library: "TypeORM",
    client: pool,
    transaction: (run) => (dataSource as unknown as TransactionSource<Manager>).transaction(run),
    statementsOf(value) {
      const runner = runnerOf(value);
      if (runner === undefined) return undefined;
      if (runner === null || !runner.isTransactionActive) {
        throw notATransaction(
          "a TypeORM manager or query runner outside a transaction",
          "Pass the `manager` of dataSource.transaction(async (manager) => …)",
        );
      }
      return {
        rows: async (text, params) => (await runner.query(text, params, true)).records,
        count: async (text, params) => (await runner.query(text, params, true)).affected ?? 0,
      };
    },
  };
}

function kindOf(given: unknown): string {
  const { options, isInitialized } = (given ?? {}) as { options?: { type?: unknown }; isInitialized?: unknown };
  if (options?.type === undefined) return valueKind(given);
  const state = isInitialized === false ? " that is not initialised" : "";
  return `a DataSource of the type ${shownValue(options.type)}${state}`;
}

function poolOf(dataSource: { readonly driver?: object }): PgPool | undefined {
  const { master } = (dataSource.driver ?? {}) as { master?: unknown };
  const isPool = typeof master === "object" && master !== null && hasMethods(master, "connect", "query");
  return isPool && "totalCount" in master ? (master as PgPool) : undefined;
}

/** Undefined: not of TypeORM. Null: a data source or a manager without one. */
function runnerOf(value: object): QueryRunner | null | undefined {
  if (hasMethods(value, "query", "startTransaction")) return value as QueryRunner;
  if (!hasMethods(value, "query", "getRepository")) return undefined;
  return (value as { queryRunner?: QueryRunner }).queryRunner ?? null;
}
