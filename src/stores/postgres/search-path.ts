import { TxboxError } from "../../core/errors.ts";
import type { Database } from "./postgres-client.ts";

/**
 * For transactions of our own: every function, operator and type in them is PostgreSQL's. A role that may create objects
 * in a schema of the path could put its own in their place, and they would run with the rights of this role.
 */
export const PINNED_PATH = "set local search_path = pg_catalog, pg_temp";

/**
 * Statements that commit by themselves name the schema of each function, and give operators exactly the types that
 * PostgreSQL has them for. That holds as long as pg_catalog is searched first, which is so unless a path names it behind
 * another schema. Such a path is refused before the first statement.
 */
export function withSafePath(database: Database): Database {
  let safe = false;
  const check = async (): Promise<void> => {
    if (safe) return;
    const [row] = await database.query("select pg_catalog.array_to_json(pg_catalog.current_schemas(true))");
    requireCatalogFirst(JSON.parse(row![0]!) as string[]);
    safe = true;
  };
  return {
    ...database,
    query: (text, params) => (safe ? database.query(text, params) : check().then(() => database.query(text, params))),
    affect: (text, params) =>
      safe ? database.affect(text, params) : check().then(() => database.affect(text, params)),
    exec: (script) => (safe ? database.exec(script) : check().then(() => database.exec(script))),
    copy: (text, onRow, signal) =>
      safe ? database.copy(text, onRow, signal) : check().then(() => database.copy(text, onRow, signal)),
    transaction: (run) => (safe ? database.transaction(run) : check().then(() => database.transaction(run))),
    lazyTransaction: (run) =>
      safe ? database.lazyTransaction(run) : check().then(() => database.lazyTransaction(run)),
  };
}

/** `schemas` in the order in which they are searched; temporary tables come before everything, and hold no functions. */
function requireCatalogFirst(schemas: readonly string[]): void {
  const before = schemas.slice(0, schemas.indexOf("pg_catalog")).filter((schema) => !schema.startsWith("pg_temp"));
  if (before.length === 0) return;
  const message = `The search_path of this role has ${before.join(", ")} before pg_catalog: a role that may create functions there could run them with the rights of txbox`;
  throw new TxboxError("unsafe_search_path", message, {
    fix: "Leave pg_catalog out of search_path (it is searched first then), or put it in front",
  });
}
