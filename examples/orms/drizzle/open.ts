import { PGlite } from "@electric-sql/pglite";
import { drizzle } from "drizzle-orm/node-postgres";
import { drizzle as drizzleOnPglite } from "drizzle-orm/pglite";
import { drizzle as drizzleOnPostgresJs } from "drizzle-orm/postgres-js";
import pg from "pg";
import postgres from "postgres";
import type { Shop } from "../shared/shop.ts";
import * as schema from "./schema.ts";
import { createShop } from "./service.ts";

export function onNodePostgres(url: string): Shop {
  const pool = new pg.Pool({ connectionString: url });
  return createShop(drizzle({ client: pool, schema }), () => pool.end());
}

export function onPostgresJs(url: string): Shop {
  const sql = postgres(url, { onnotice: () => undefined });
  return createShop(drizzleOnPostgresJs({ client: sql, schema }), () => sql.end({ timeout: 5 }));
}

export function onPglite(client: PGlite): Shop {
  return createShop(drizzleOnPglite({ client, schema }), () => client.close());
}
