import { randomBytes } from "node:crypto";
import { MIGRATIONS } from "../../../src/stores/postgres/migrations/index.ts";
import { databaseOf, type Database } from "../../../src/stores/postgres/postgres-client.ts";
import { createPostgresStore } from "../../../src/stores/postgres/postgres-store.ts";
import type { Driver } from "../../support/postgres-drivers.ts";

/** Deleting a relay takes everything with it that belongs to it. */
const TABLES = ["relay", "message", "kept_message", "enqueued_id", "scheduled", "receipt", "change", "sample", "own"];

/**
 * Migrated schemas, one for each case that runs. Making one costs more than most cases, so those that a case left as
 * they were, but for rows, are emptied and used again.
 */
export class SchemaPool {
  readonly database: Database;
  readonly #driver: Driver;
  readonly #free: string[] = [];

  constructor(driver: Driver) {
    this.#driver = driver;
    this.database = databaseOf(driver.client);
  }

  async take(): Promise<string> {
    const used = this.#free.pop();
    if (used !== undefined) return used;
    const schema = `c_${randomBytes(6).toString("hex")}`;
    await createPostgresStore({ client: this.#driver.client, schema }).migrator.migrate();
    await this.database.query(`create table ${schema}.own (n bigint generated always as identity, text text)`);
    return schema;
  }

  async giveBack(schema: string): Promise<void> {
    if (!(await this.#isUnchanged(schema))) return;
    await this.database.exec(TABLES.map((table) => `delete from ${schema}.${table}`).join("; "));
    this.#free.push(schema);
  }

  /** No table or migration is missing, and the log has the two segments it began with. */
  async #isUnchanged(schema: string): Promise<boolean> {
    try {
      const [row] = await this.database.query(
        `select (select count(*) from ${schema}.segment where closed_at is null and n < 2) = 2
           and (select count(*) = ${MIGRATIONS.length} and max(version) = ${MIGRATIONS.at(-1)!.version} from ${schema}.migration) and to_regclass('${schema}.own') is not null`,
      );
      return row?.[0] === "t";
    } catch {
      return false;
    }
  }
}
