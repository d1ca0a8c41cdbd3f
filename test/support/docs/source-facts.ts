import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./markdown.ts";

function source(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

/** Names of the properties of an exported interface. */
export function propertiesOf(path: string, name: string): string[] {
  const body = new RegExp(`export interface ${name}\\b[^{]*\\{\\n([\\s\\S]*?)\\n\\}`).exec(source(path))?.[1];
  if (body === undefined) throw new Error(`${path} has no interface ${name}`);
  return Array.from(body.matchAll(/^ {2}(?:readonly )?(\w+)\??:/gm), (match) => match[1] ?? "");
}

/** Members of an exported union of string literals. */
export function literalsOf(path: string, name: string): string[] {
  const body = new RegExp(`export type ${name} =([\\s\\S]*?);`).exec(source(path))?.[1];
  if (body === undefined) throw new Error(`${path} has no type ${name}`);
  return Array.from(body.matchAll(/"(\w+)"/g), (match) => match[1] ?? "");
}

export function postgresTables(): string[] {
  const body = /const TABLES = \[([\s\S]*?)\]/.exec(source("src/stores/postgres/postgres-names.ts"))?.[1] ?? "";
  return Array.from(body.matchAll(/"(\w+)"/g), (match) => match[1] ?? "");
}
