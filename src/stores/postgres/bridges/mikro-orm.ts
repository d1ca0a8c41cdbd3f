import { TxboxError } from "../../../core/errors.ts";
import { valueKind } from "../../../core/value-kind.ts";
import { hasMethods, notATransaction } from "../drivers/driver.ts";
import type { PgPool } from "../drivers/node-postgres.ts";
import type { PostgresBridge } from "./bridge.ts";
import { kyselyStatements } from "./kysely.ts";
import { requirePool } from "./require-pool.ts";

/** MikroORM 7 on PostgreSQL: `await MikroORM.init({ … })`. */
export interface MikroOrm<Em> {
  readonly em: {
    fork(): { transactional(run: (em: Em) => Promise<unknown>): Promise<unknown> };
  };
}

/**
 * `enqueue` takes the `em` of `orm.em.transactional(async (em) => …)`, and handlers get one. `pool` is that of MikroORM:
 * `driverOptions: { onPoolCreated: (pool) => … }` hands it out.
 */
export function fromMikroOrm<Em extends object>(orm: MikroOrm<Em>, pool: PgPool): PostgresBridge<Em> {
  if (typeof orm !== "object" || !isManager(orm?.em)) {
    throw new TxboxError("invalid_option", `fromMikroOrm needs a MikroORM instance, got ${valueKind(orm)}`, {
      field: "orm",
      fix: "Pass await MikroORM.init({ … })",
    });
  }
  const made = "driverOptions: { onPoolCreated: (one) => (pool = one) }";
  return {
    library: "MikroORM",
    client: requirePool("fromMikroOrm(orm, pool)", made, pool),
    transaction: <T>(run: (em: Em) => Promise<T>) => orm.em.fork().transactional(run) as Promise<T>,
    statementsOf(value) {
      if (!isManager(value)) return undefined;
      const context = value.getTransactionContext();
      if (context !== undefined) return kyselyStatements(context);
      throw notATransaction(
        "an EntityManager outside a transaction",
        "Pass the `em` of orm.em.transactional(async (em) => …)",
      );
    },
  };
}

function isManager(value: unknown): value is { getTransactionContext(): object | undefined } {
  return typeof value === "object" && value !== null && hasMethods(value, "transactional", "getTransactionContext");
}
