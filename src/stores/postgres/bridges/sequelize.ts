import { TxboxError } from "../../../core/errors.ts";
import { valueKind } from "../../../core/value-kind.ts";
import { hasMethods, notATransaction } from "../drivers/driver.ts";
import type { PgClient } from "../drivers/node-postgres.ts";
import type { PostgresBridge } from "./bridge.ts";
import { poolOfClients } from "./pool-of-clients.ts";

/** Sequelize 6 on PostgreSQL: `new Sequelize(url)`. */
export interface SequelizeDatabase<Tx> {
  transaction(options?: object): Promise<Tx>;
}

interface TransactionSource<Tx> {
  transaction<T>(run: (t: Tx) => Promise<T>): Promise<T>;
}

interface SequelizeFace {
  getDialect(): string;
  readonly connectionManager: {
    getConnection(options: object): Promise<object>;
    releaseConnection(connection: object): void;
    destroyConnection(connection: object): Promise<void>;
  };
}

/** `enqueue` takes the `t` of `sequelize.transaction(async (t) => …)`, and handlers get one. */
export function fromSequelize<Tx extends object>(sequelize: SequelizeDatabase<Tx>): PostgresBridge<Tx> {
  const face = isSequelize(sequelize) ? sequelize : undefined;
  if (face?.getDialect() !== "postgres") {
    const got = face === undefined ? valueKind(sequelize) : `Sequelize on ${face.getDialect()}`;
    throw new TxboxError("invalid_option", `fromSequelize needs Sequelize on PostgreSQL, got ${got}`, {
      field: "sequelize",
      fix: 'Pass new Sequelize("postgres://…")',
    });
  }
  const { connectionManager: manager } = face;
  return {
    library: "Sequelize",
    client: poolOfClients({
      acquire: () => manager.getConnection({ type: "write", useMaster: true }),
      release: (connection) => manager.releaseConnection(connection),
      destroy: (connection) => manager.destroyConnection(connection),
    }),
    transaction<T>(run: (t: Tx) => Promise<T>, connection: object) {
      const lender = {
        getConnection: () => Promise.resolve(connection),
        releaseConnection: () => undefined,
        destroyConnection: () => Promise.resolve(),
      };
      // The same in everything but where its connections come from; models go by the connection of the transaction.
      const over = Object.create(sequelize, { connectionManager: { value: lender } }) as TransactionSource<Tx>;
      return over.transaction(run);
    },
    statementsOf(value) {
      if (isSequelize(value)) throw notATransaction("the Sequelize instance", FIX);
      if (!hasMethods(value, "commit", "rollback") || !("sequelize" in value)) return undefined;
      const { connection: driver, finished } = value as { connection?: PgClient; finished?: string };
      if (driver === undefined || finished !== undefined) {
        throw notATransaction("a Sequelize transaction that is not open", FIX);
      }
      return { driver };
    },
  };
}

const FIX = "Pass the `t` of sequelize.transaction(async (t) => …)";

function isSequelize(value: unknown): value is SequelizeFace {
  return typeof value === "object" && value !== null && hasMethods(value, "query", "define", "getDialect");
}
