import type pg from "pg";
import { notATransaction, type PostgresBridge } from "../../src/stores/postgres/index.ts";

/** A library over a pool, as small as one can be: its transactions are its own, and its errors do not say what failed. */
export class SmallOrm {
  readonly #pool: pg.Pool;
  /** What it believes to have committed, in the moment in which it believes so. */
  onCommit: (() => Promise<void>) | undefined;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  async transaction<T>(run: (tx: SmallTransaction) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    const tx = new SmallTransaction(client);
    try {
      await client.query("BEGIN");
      const result = await run(tx);
      await client.query("COMMIT");
      await this.onCommit?.();
      return result;
    } catch (error) {
      await client.query("ROLLBACK").catch(() => undefined);
      throw error;
    } finally {
      tx.ended = true;
      client.release();
    }
  }
}

export class SmallTransaction {
  ended = false;
  readonly #client: pg.PoolClient;

  constructor(client: pg.PoolClient) {
    this.#client = client;
  }

  /** Hides what failed. */
  async run(text: string, params: readonly unknown[] = []): Promise<Result> {
    try {
      return await this.query(text, params);
    } catch (error) {
      const known = error instanceof Error && error.name === "TxboxError";
      // oxlint-disable-next-line eslint/preserve-caught-error -- to hide it is what is tested
      throw known ? error : new Error("Something went wrong");
    }
  }

  query(text: string, params: readonly unknown[]): Promise<Result> {
    return this.#client.query<Record<string, unknown>>(text, [...params]);
  }
}

type Result = pg.QueryResult<Record<string, unknown>>;

/** Its bridge, by what is public of txbox. */
export function fromSmallOrm(orm: SmallOrm, pool: pg.Pool): PostgresBridge<SmallTransaction> {
  return {
    library: "SmallOrm",
    client: pool,
    transaction: (run) => orm.transaction(run),
    statementsOf(value) {
      if (value instanceof SmallOrm) {
        throw notATransaction("the SmallOrm", "Pass the `tx` of orm.transaction(async (tx) => …)");
      }
      if (!(value instanceof SmallTransaction)) return undefined;
      if (value.ended) throw notATransaction("a transaction that has ended", "Await enqueue inside the transaction");
      return {
        rows: async (text, params) => (await value.query(text, params)).rows,
        count: async (text, params) => (await value.query(text, params)).rowCount ?? 0,
      };
    },
  };
}
