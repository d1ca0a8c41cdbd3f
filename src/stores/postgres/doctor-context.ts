import type { Symptom } from "../../core/contracts.ts";
import { PlannedTransactions } from "./planned-transactions.ts";
import type { Database, Row, SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

export interface DoctorOptions {
  database: Database;
  names: Names;
  segmentMs: number;
  retentionMs: number;
}

/** The server gives up by itself what the doctor no longer waits for. */
const SETTINGS = [
  ["jit", "off"],
  ["statement_timeout", "10000"],
  ["lock_timeout", "1000"],
] as const;

/** What the checks work with. Every look is a transaction that can only read. */
export class DoctorContext {
  readonly options: DoctorOptions;
  readonly names: Names;
  readonly #transactions: PlannedTransactions;

  constructor(options: DoctorOptions) {
    this.options = options;
    this.names = options.names;
    this.#transactions = new PlannedTransactions(options.database, options.names);
  }

  read<T>(run: (sql: SqlRunner) => Promise<T>): Promise<T> {
    return this.#transactions.read(SETTINGS, run);
  }

  ask(text: string, params: (string | null)[] = []): Promise<Row[]> {
    return this.read((sql) => sql.query(text, params));
  }

  async settings(...wanted: string[]): Promise<ReadonlyMap<string, string>> {
    // Of a setting that this server does not know there is nothing to say.
    const rows = await this.ask(
      `select name, case when unit = 'ms' then setting when unit = 's' then (setting::numeric * 1000)::text else setting end
       from pg_settings where name in (${wanted.map((name) => `'${name}'`).join(", ")})`,
    );
    return new Map(rows.map(([name, value]) => [name!, value!]));
  }
}

/** One symptom, or none. */
export function when(condition: boolean, symptom: () => Symptom): Symptom[] {
  return condition ? [symptom()] : [];
}
