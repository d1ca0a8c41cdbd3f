import type { Database, SqlRunner } from "./postgres-client.ts";
import { explain, retried } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";

/**
 * For statements that run now and then over tables that may be large, fresh or never analysed: they go by indexes, and the
 * server does not compile them, which takes far longer than running them. The pool is the application's, so the settings
 * end with the transaction.
 */
export const BY_INDEX: readonly (readonly [setting: string, value: string])[] = [
  ["jit", "off"],
  ["enable_seqscan", "off"],
];

/** A look by time into the BRIN index of the log: whatever else the planner may think of reads more. */
export const BY_TIME: typeof BY_INDEX = [...BY_INDEX, ["enable_indexscan", "off"], ["enable_indexonlyscan", "off"]];

/** The same where a part of the rows is wanted in order: never all of them, to be sorted. */
export const IN_ORDER: readonly (readonly [setting: string, value: string])[] = [
  ...BY_INDEX,
  ["enable_bitmapscan", "off"],
  ["enable_hashjoin", "off"],
  ["enable_mergejoin", "off"],
];

/** The same for the first rows of an index, where sorting could only mean to have read all of them. */
export const FIRST_ONLY: readonly (readonly [setting: string, value: string])[] = [
  ...BY_INDEX,
  ["enable_bitmapscan", "off"],
  ["enable_sort", "off"],
];

/** The same for what people and monitoring ask for: the server itself ends a query that takes too long. */
export function patient(settings: typeof BY_INDEX): typeof BY_INDEX {
  return [...settings, ["statement_timeout", "30000"]];
}

/** What monitoring asks again and again. */
export const FIGURES: typeof BY_INDEX = patient(FIRST_ONLY);

/** See `PINNED_PATH`. */
const PATH = ["search_path", "pg_catalog, pg_temp"] as const;
/** Makes a statement fail when row-level security would hide rows: it must not work on a part of them. */
const ALL_ROWS = ["row_security", "off"] as const;

/** Transactions with settings of their own. What the server gave up for another transaction is run again. */
export class PlannedTransactions {
  readonly #database: Database;
  readonly #names: Names;

  constructor(database: Database, names: Names) {
    this.#database = database;
    this.#names = names;
  }

  /** Everything in it is seen at one moment. */
  read<T>(settings: typeof BY_INDEX, run: (sql: SqlRunner) => Promise<T>): Promise<T> {
    return this.#run("set transaction isolation level repeatable read, read only", settings, run);
  }

  write<T>(settings: typeof BY_INDEX, run: (sql: SqlRunner) => Promise<T>): Promise<T> {
    return this.#run("set transaction isolation level read committed", settings, run);
  }

  async #run<T>(mode: string, settings: typeof BY_INDEX, run: (sql: SqlRunner) => Promise<T>): Promise<T> {
    const set = [...settings, PATH, ALL_ROWS].map(
      ([name, value]) => `pg_catalog.set_config('${name}', '${value}', true)`,
    );
    try {
      return await retried(() =>
        this.#database.transaction(async (_, sql) => {
          await sql.query(mode);
          await sql.query(`select ${set.join(", ")}`);
          return run(sql);
        }),
      );
    } catch (error) {
      throw explain(error, this.#names.schema);
    }
  }
}
