import type pg from "pg";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";

/** A pool that can be pointed at another database, as when one is restored in the place of the old. */
export function switchingPool(first: pg.Pool): { client: PgPool; use(pool: pg.Pool): void } {
  let current = first;
  return {
    client: {
      query: (config) => current.query(config as pg.QueryConfig),
      connect: () => current.connect(),
      get totalCount() {
        return current.totalCount;
      },
    },
    use(pool) {
      current = pool;
    },
  };
}
