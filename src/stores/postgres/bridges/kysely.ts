import { describeError, TxboxError } from "../../../core/errors.ts";
import { valueKind } from "../../../core/value-kind.ts";
import { hasMethods, notATransaction } from "../drivers/driver.ts";
import type { PgPool } from "../drivers/node-postgres.ts";
import type { BridgedStatements, PostgresBridge } from "./bridge.ts";
import { requirePool } from "./require-pool.ts";

/** A transaction of Kysely that is ended by calling it so, which is what makes savepoints possible. */
interface ControlledTransaction {
  commit(): { execute(): Promise<unknown> };
  rollback(): { execute(): Promise<unknown> };
}

/** Kysely on node-postgres: `new Kysely({ dialect: new PostgresDialect({ pool }) })`. */
export interface KyselyDatabase<Controlled, Trx> {
  startTransaction(): { execute(): Promise<Controlled> };
  transaction(): { execute(run: (trx: Trx) => Promise<unknown>): Promise<unknown> };
}

/**
 * `enqueue` takes the `trx` of `db.transaction().execute(async (trx) => …)` and of `db.startTransaction()`, and handlers get
 * one of the latter. `pool` is that of the dialect.
 */
export function fromKysely<Controlled extends object, Trx extends object>(
  db: KyselyDatabase<Controlled, Trx>,
  pool: PgPool,
): PostgresBridge<Controlled, Trx> {
  if (!isKysely(db) || isTransaction(db)) {
    throw new TxboxError("invalid_option", `fromKysely needs a Kysely instance, got ${valueKind(db)}`, {
      field: "db",
      fix: "Pass new Kysely({ dialect: new PostgresDialect({ pool }) })",
    });
  }
  const dialect = otherDialect(db);
  if (dialect !== undefined) {
    throw new TxboxError("invalid_option", `fromKysely needs Kysely on PostgreSQL, got Kysely with ${dialect}`, {
      field: "db",
      fix: "Pass new Kysely({ dialect: new PostgresDialect({ pool }) })",
    });
  }
  return {
    library: "Kysely",
    client: requirePool("fromKysely(db, pool)", "new PostgresDialect({ pool })", pool),
    async transaction(run) {
      const trx = await db.startTransaction().execute();
      const { commit, rollback } = bound(trx as Controlled & ControlledTransaction);
      let result;
      try {
        result = await run(trx);
      } catch (error) {
        await rollback();
        throw error;
      }
      await commit();
      return result;
    },
    statementsOf: kyselyStatements,
  };
}

function bound(trx: ControlledTransaction): Record<"commit" | "rollback", () => Promise<unknown>> {
  return { commit: () => trx.commit().execute(), rollback: () => trx.rollback().execute() };
}

/** A transaction knows of its end where it can be ended by calling it so. */
interface Ending {
  readonly isCommitted?: boolean;
  readonly isRolledBack?: boolean;
}

/** A part of a Kysely instance. */
interface Executor {
  withoutPlugins(): Executor;
  executeQuery(query: object): Promise<{ rows: object[]; numAffectedRows?: bigint }>;
}

export function kyselyStatements(value: object): BridgedStatements | undefined {
  if (!isKysely(value)) return undefined;
  if (!isTransaction(value)) {
    throw notATransaction("the Kysely instance", "Pass the `trx` of db.transaction().execute(async (trx) => …)");
  }
  const { isCommitted = false, isRolledBack = false } = value as Ending;
  if (isCommitted || isRolledBack) throw hasEnded();
  const run = async (text: string, parameters: readonly unknown[]) => {
    const query = { kind: "RawNode", sqlFragments: [text], parameters: [] };
    try {
      return await value.withoutPlugins().executeQuery({ sql: text, parameters, query, queryId: { queryId: "txbox" } });
    } catch (error) {
      throw /\bTransaction is already (?:committed|rolled back)/.test(describeError(error)) ? hasEnded() : error;
    }
  };
  return {
    rows: async (text, params) => (await run(text, params)).rows,
    count: async (text, params) => Number((await run(text, params)).numAffectedRows ?? 0),
  };
}

function hasEnded(): TxboxError {
  return notATransaction("a Kysely transaction that has ended", "Await enqueue before it is committed or rolled back");
}

function isKysely(value: unknown): value is Executor {
  return typeof value === "object" && value !== null && hasMethods(value, "selectFrom", "executeQuery", "getExecutor");
}

interface Adapter {
  readonly supportsReturning?: boolean;
  readonly supportsTransactionalDdl?: boolean;
}

/** The dialect of another database, by what PostgreSQL alone has both of; its name may have been made short by a bundler. */
function otherDialect(db: object): string | undefined {
  const { adapter } = (db as { getExecutor(): { adapter?: Adapter } }).getExecutor() ?? {};
  if (adapter === undefined || (adapter.supportsReturning === true && adapter.supportsTransactionalDdl === true))
    return;
  return valueKind(adapter);
}

function isTransaction(value: object): boolean {
  return "isTransaction" in value && value.isTransaction === true;
}
