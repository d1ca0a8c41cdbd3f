import { TxboxError } from "../../../core/errors.ts";
import { valueKind } from "../../../core/value-kind.ts";
import { hasMethods, notATransaction } from "../drivers/driver.ts";
import { DRIVERS } from "../drivers/index.ts";
import type { PgClient } from "../drivers/node-postgres.ts";
import type { PostgresBridge } from "./bridge.ts";

/** Drizzle on node-postgres, postgres.js or PGlite: what `drizzle(…)` returns. */
export interface DrizzleDatabase<Tx> {
  readonly $client: object;
  transaction(run: (tx: Tx) => Promise<unknown>): Promise<unknown>;
}

/** `enqueue` takes the `tx` of `db.transaction(async (tx) => …)`, and handlers get one, made with everything that `db` has. */
export function fromDrizzle<Tx extends object>(db: DrizzleDatabase<Tx>): PostgresBridge<Tx> {
  const client: unknown = hasMethods(db, "transaction", "select") ? db.$client : undefined;
  if (!isObject(client) || !DRIVERS.some((driver) => driver.isClient(client))) {
    const got = client === undefined ? valueKind(db) : `Drizzle on ${valueKind(client)}`;
    throw new TxboxError("invalid_option", `fromDrizzle needs Drizzle on PostgreSQL, got ${got}`, {
      field: "db",
      fix: "Pass drizzle({ client: new pg.Pool(…) }), or one on postgres.js or PGlite",
    });
  }
  return {
    library: "Drizzle",
    client: client as PostgresBridge["client"],
    transaction: <T>(run: (tx: Tx) => Promise<T>) => db.transaction(run) as Promise<T>,
    statementsOf(value) {
      if (!hasMethods(value, "select", "insert", "transaction") || !("_" in value)) return undefined;
      const driver = hasMethods(value, "rollback") ? connectionOf(value) : undefined;
      if (driver !== undefined) return { driver };
      throw notATransaction("the Drizzle database", "Pass the `tx` of db.transaction(async (tx) => …)");
    },
  };
}

function connectionOf(tx: object): PgClient | undefined {
  const { session } = tx as { session?: { client?: unknown } };
  return isObject(session?.client) ? (session.client as PgClient) : undefined;
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}
