import type { TestProject } from "vitest/node";
import { serverOrSkip } from "./server-or-skip.ts";
import { startPostgres } from "./start-postgres.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** The PostgreSQL that all suites of a run share; undefined when this machine has none. */
    postgresUrl: string | undefined;
  }
}

/** One PostgreSQL for the whole run. Suites keep apart by database or schema, and start their own to kill it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const slot = await serverOrSkip("PostgreSQL", () => startPostgres());
  project.provide("postgresUrl", slot.skipped ? undefined : slot.server.url);
  return () => slot.stop();
}
