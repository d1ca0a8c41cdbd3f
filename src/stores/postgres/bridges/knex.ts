import { TxboxError } from "../../../core/errors.ts";
import { valueKind } from "../../../core/value-kind.ts";
import { hasMethods, notATransaction } from "../drivers/driver.ts";
import type { PostgresBridge } from "./bridge.ts";
import { poolOfClients } from "./pool-of-clients.ts";

/** Knex on node-postgres: `knex({ client: "pg", connection })`. Objection's transactions are those of Knex. */
export interface KnexDatabase<Tx> {
  transaction(run: (trx: Tx) => Promise<unknown>, config?: { connection?: unknown }): Promise<unknown>;
}

interface KnexClient {
  readonly config?: { readonly client?: unknown };
  readonly dialect?: string;
  readonly driverName?: string;
  acquireConnection(): Promise<PgConnection>;
  releaseConnection(connection: object): Promise<void>;
}

interface PgConnection {
  query(config: object): Promise<{ rows: object[]; rowCount: number | null }>;
  end(): Promise<void>;
}

interface KnexFace {
  readonly client: KnexClient;
  readonly isTransaction?: boolean;
  isCompleted?(): boolean;
}

/** `enqueue` takes the `trx` of `knex.transaction(async (trx) => …)`, and handlers get one. */
export function fromKnex<Tx extends object>(knex: KnexDatabase<Tx>): PostgresBridge<Tx> {
  const client = isKnex(knex) && knex.isTransaction !== true ? knex.client : undefined;
  if (client?.driverName !== "pg") {
    const got = client === undefined ? valueKind(knex) : `Knex with the client ${String(client.driverName)}`;
    throw new TxboxError("invalid_option", `fromKnex needs Knex on PostgreSQL, got ${got}`, {
      field: "knex",
      fix: 'Pass knex({ client: "pg", connection })',
    });
  }
  return {
    library: "Knex",
    client: poolOfClients({
      acquire: () => client.acquireConnection(),
      release: (connection) => client.releaseConnection(connection),
      async destroy(connection) {
        // Knex closes it, instead of keeping it, once it knows that it has ended.
        (connection as PgConnection).end().catch(() => undefined);
        Object.assign(connection, { __knex__disposed: "closed by txbox" });
        await client.releaseConnection(connection);
      },
    }),
    transaction: <T>(run: (trx: Tx) => Promise<T>, connection: object) =>
      knex.transaction(run, { connection }) as Promise<T>,
    statementsOf(value) {
      if (!isKnex(value)) return undefined;
      if (value.isTransaction !== true) {
        throw notATransaction("the Knex instance", "Pass the `trx` of knex.transaction(async (trx) => …)");
      }
      const run = async (text: string, values: readonly unknown[]) => {
        if (value.isCompleted?.() === true) {
          throw notATransaction("a Knex transaction that has ended", "Await enqueue inside knex.transaction(…)");
        }
        return (await value.client.acquireConnection()).query({ text, values });
      };
      return {
        rows: async (text, params) => (await run(text, params)).rows,
        count: async (text, params) => (await run(text, params)).rowCount ?? 0,
      };
    },
  };
}

function isKnex(value: unknown): value is KnexFace {
  return typeof value === "function" && hasMethods(value, "raw", "transaction") && "client" in value;
}
