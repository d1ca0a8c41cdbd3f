import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Pglite from "@electric-sql/pglite";
import type * as Mongo from "mongodb";
import type * as Pg from "pg";
import type * as Prometheus from "prom-client";
import { errorCode } from "../core/errors.ts";
import { UsageError } from "./usage-error.ts";

export function importPg(cwd: string): Promise<typeof Pg> {
  return importDriver(() => import("pg"), "pg", cwd);
}

export function importPglite(cwd: string): Promise<typeof Pglite> {
  return importDriver(() => import("@electric-sql/pglite"), "@electric-sql/pglite", cwd);
}

export function importMongo(cwd: string): Promise<typeof Mongo> {
  return importDriver(() => import("mongodb"), "mongodb", cwd);
}

export function importPrometheus(cwd: string): Promise<typeof Prometheus> {
  return importDriver(() => import("prom-client"), "prom-client", cwd, "package");
}

/** The driver beside txbox, else the one of the project in the current folder: `npx` may keep txbox elsewhere. */
async function importDriver<T>(load: () => Promise<T>, name: string, cwd: string, what = "driver"): Promise<T> {
  try {
    return await load();
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
  try {
    const file = createRequire(join(cwd, "package.json")).resolve(name);
    return (await import(pathToFileURL(file).href)) as T;
  } catch (error) {
    if (!isMissing(error)) throw error;
    throw new UsageError(`The ${what} ${name} is not installed. Run \`npm install ${name}\``, { cause: error });
  }
}

function isMissing(error: unknown): boolean {
  const code = errorCode(error);
  return code === "ERR_MODULE_NOT_FOUND" || code === "MODULE_NOT_FOUND";
}
