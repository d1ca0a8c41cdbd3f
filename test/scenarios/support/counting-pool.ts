import type pg from "pg";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";

export interface CountingPool {
  readonly client: PgPool;
  /** Statements sent so far, transactions not counted. */
  readonly statements: number;
}

export function countingPool(pool: pg.Pool): CountingPool {
  let statements = 0;
  return {
    client: {
      query(config) {
        statements++;
        return pool.query(config as pg.QueryConfig);
      },
      connect: () => pool.connect(),
      get totalCount() {
        return pool.totalCount;
      },
    },
    get statements() {
      return statements;
    },
  };
}
