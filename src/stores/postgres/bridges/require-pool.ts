import { TxboxError } from "../../../core/errors.ts";
import { valueKind } from "../../../core/value-kind.ts";
import { foreignClient, foreignUrl } from "../drivers/foreign-client.ts";
import { hasMethods } from "../drivers/driver.ts";
import { DRIVERS } from "../drivers/index.ts";
import { isSingleClient, type PgPool } from "../drivers/node-postgres.ts";

/** The pool beside a library that keeps its own to itself. */
export function requirePool(call: string, made: string, pool: unknown): PgPool {
  if (isObject(pool) && hasMethods(pool, "connect", "query") && "totalCount" in pool) return pool as PgPool;
  const foreign = isObject(pool) ? foreignClient(pool)?.name : foreignUrl(pool)?.name;
  const single = isObject(pool) && isSingleClient(pool) ? "a single pg.Client" : undefined;
  const other = isObject(pool) ? DRIVERS.find((driver) => driver.isClient(pool))?.wants : undefined;
  throw new TxboxError(
    "invalid_option",
    `${call} needs a pg.Pool, got ${foreign ?? single ?? other ?? valueKind(pool)}`,
    {
      field: "pool",
      fix: `Pass the very pool that it was made with: ${made}`,
    },
  );
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}
