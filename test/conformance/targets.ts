import type { StoreFeature } from "../../src/testing/index.ts";

/** A line of the matrix: an adapter with the client and server it is proven on. */
export interface Target {
  readonly id: string;
  readonly adapter: string;
  readonly client: string;
  readonly server: string;
  readonly features: readonly string[];
}

export interface StoreTarget extends Target {
  readonly features: readonly StoreFeature[];
}

export type CaseResult = "passed" | "failed" | "not applicable";

const ALL: readonly StoreFeature[] = ["concurrency", "sharing", "savepoints", "log", "retention", "restore"];
const ONE_CONNECTION: readonly StoreFeature[] = ["savepoints", "log", "retention", "restore"];

const postgres = (id: string, client: string, server: string, features = ALL): StoreTarget => ({
  id: `postgres-${id}`,
  adapter: "postgres",
  client,
  server,
  features,
});

export const nodePostgres: StoreTarget = postgres("node-postgres", "node-postgres", "PostgreSQL 18");
export const postgresJs: StoreTarget = postgres("postgres-js", "postgres.js", "PostgreSQL 18");
export const pglite: StoreTarget = postgres("pglite", "PGlite", "PGlite", ONE_CONNECTION);
export const systemPostgres: StoreTarget = postgres("system", "node-postgres", "PostgreSQL 14 or later of the system");
export const pgBouncer: StoreTarget = postgres(
  "pgbouncer",
  "node-postgres",
  "PostgreSQL 18 behind PgBouncer, transaction mode",
);

export const storeTargets: readonly StoreTarget[] = [nodePostgres, postgresJs, pglite, systemPostgres, pgBouncer];

/** Where a run leaves its results. */
export function targetFile({ id }: Target): URL {
  return new URL(`.results/${id}.json`, import.meta.url);
}
