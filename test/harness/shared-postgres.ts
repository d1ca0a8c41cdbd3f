import { inject } from "vitest";
import { createDatabase, type TestDatabase } from "./create-database.ts";

/** For `describe.skipIf(!hasPostgres())`. Always true in CI, where the run fails without a server. */
export function hasPostgres(): boolean {
  return inject("postgresUrl") !== undefined;
}

/** The server that the whole test run shares: never stop or kill it, and do not write to its default database. */
export function sharedPostgresUrl(): string {
  const url = inject("postgresUrl");
  if (url === undefined)
    throw new Error("no PostgreSQL in this run; guard the suite with describe.skipIf(!hasPostgres())");
  return url;
}

/** A fresh database on the shared server with the tables of txbox in the schema txbox. */
export function migratedDatabase(): Promise<TestDatabase> {
  return createDatabase(sharedPostgresUrl(), undefined, inject("postgresTemplate"));
}

/** A fresh database on the shared server, for one suite. */
export function testDatabase(): Promise<TestDatabase> {
  return createDatabase(sharedPostgresUrl());
}
