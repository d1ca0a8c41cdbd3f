import type { PostgresDriver } from "./driver.ts";
import { nodePostgres } from "./node-postgres.ts";
import { pglite } from "./pglite.ts";
import { postgresJs } from "./postgres-js.ts";

/** Every driver that a client or a transaction may be of. */
export const DRIVERS: readonly PostgresDriver[] = [nodePostgres, postgresJs, pglite];
