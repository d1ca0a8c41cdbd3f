import type { TestProject } from "vitest/node";
import pg from "pg";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { createDatabase, type TestDatabase } from "./create-database.ts";
import { serverOrSkip } from "./server-or-skip.ts";
import { startPostgres } from "./start-postgres.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** The PostgreSQL that all suites of a run share; undefined when this machine has none. */
    postgresUrl: string | undefined;
    /** A database on it with the tables of txbox, to be copied: that is faster than to migrate each new one. */
    postgresTemplate: string | undefined;
  }
}

/** One PostgreSQL for the whole run. Suites keep apart by database or schema, and start their own to kill it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const slot = await serverOrSkip("PostgreSQL", () => startPostgres());
  project.provide("postgresUrl", slot.skipped ? undefined : slot.server.url);
  const template = slot.skipped ? undefined : await createTemplate(slot.server.url);
  project.provide("postgresTemplate", template?.name);
  return async () => {
    await template?.drop();
    await slot.stop();
  };
}

async function createTemplate(serverUrl: string): Promise<TestDatabase> {
  const template = await createDatabase(serverUrl);
  const pool = new pg.Pool({ connectionString: template.url, max: 1 });
  await createPostgresStore({ client: pool }).migrator.migrate();
  await pool.end();
  return template;
}
