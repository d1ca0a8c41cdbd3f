import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import { MIGRATIONS } from "../../src/stores/postgres/migrations/index.ts";
import type { Migration } from "../../src/stores/postgres/migrations/migration.ts";

/** Databases out there were made by exactly this text: what has to change is a migration of its own. */
const RELEASED: Readonly<Record<string, string>> = {
  "1 init": "37e709591e16b05af0e97b75c1e85df2167dcec356415e3c39fb1177208567c3",
};

it.each(Object.entries(RELEASED))("migration %s is as it was released", (name, hash) => {
  const found = MIGRATIONS.find((migration) => `${migration.version} ${migration.name}` === name);
  expect(createHash("sha256").update(textOf(found!)).digest("hex")).toBe(hash);
});

function textOf(migration: Migration): string {
  return "sql" in migration ? migration.sql : JSON.stringify(migration.pieces);
}
