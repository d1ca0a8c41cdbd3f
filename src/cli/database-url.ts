import { printable } from "../core/printable.ts";
import { UsageError } from "./usage-error.ts";

export interface DatabaseUrl {
  readonly kind: "postgres" | "mongodb" | "pglite";
  /** For the driver. */
  readonly text: string;
  /** Host, port and database, or the folder: safe to print. */
  readonly where: string;
}

const FORMS = "Use postgres://…, mongodb://… or pglite:FOLDER";
const STORES = "Stores of txbox are PostgreSQL, PGlite and MongoDB";
const NAMES: Readonly<Record<string, string>> = {
  mysql: "MySQL",
  mysql2: "MySQL",
  mariadb: "MariaDB",
  sqlite: "SQLite",
  sqlserver: "SQL Server",
  mssql: "SQL Server",
  oracle: "Oracle",
  redis: "Redis",
  file: "a file",
};
const ESCAPES = "Write / ? # @ and blanks in the user name or password as %2F %3F %23 %40 %20";

/**
 * Takes a URL apart. `from` is where it came from, such as `--database-url`: errors name that and never the URL, because what
 * cannot be taken apart may hold the password anywhere.
 */
export function parseDatabaseUrl(given: string, from: string): DatabaseUrl {
  const text = given.trim();
  const fail = (why: string): never => {
    throw new UsageError(`${from} is no database URL${why}`);
  };
  if (text.startsWith("pglite:")) return pgliteFolder(text, from);
  const parts = /^(postgres|postgresql|mongodb|mongodb\+srv):\/\/([^/?#]*)([^?#]*)([^]*)$/i.exec(text);
  if (parts === null) return fail(hintFor(text));
  const [, scheme = "", authority = "", path = "", rest = ""] = parts;
  // An "@" behind the host means that the password has a character in it which ends the host.
  if (path.includes("@") || rest.includes("@")) return fail(`. ${ESCAPES}`);
  const hosts = authority.slice(authority.lastIndexOf("@") + 1);
  if (!/^[\w.,:%[\]-]*$/.test(hosts)) return fail(`: the host has characters that no host has. ${ESCAPES}`);
  if (scheme.toLowerCase().startsWith("mongodb"))
    return { kind: "mongodb", text: scheme.toLowerCase() + text.slice(scheme.length), where: printable(hosts + path) };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined) return fail(`: host or port are wrong. ${ESCAPES}`);
  return {
    kind: "postgres",
    text,
    where: printable(`${url.hostname || "localhost"}:${url.port || "5432"}${url.pathname}`),
  };
}

/** What must not be printed of a URL: all of it, and its password by itself. */
export function secretsOf(given: string): readonly string[] {
  if (given.startsWith("pglite:") && !given.includes("@")) return [];
  const [, userinfo = ""] = /^[a-z][a-z0-9+.-]*:\/\/([^]*)@/i.exec(given.trim()) ?? [];
  const [user = "", ...password] = userinfo.split(":");
  const parameters = Array.from(given.matchAll(/[?&\s](?:ssl)?password=([^&\s]*)/gi), (match) => match[1] ?? "");
  const raw = [password.join(":"), ...parameters].filter((secret) => secret !== user);
  return [given, ...raw.flatMap((secret) => [secret, decoded(secret)])];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function pgliteFolder(text: string, from: string): DatabaseUrl {
  const folder = text.slice("pglite:".length).replace(/^\/\/(?=.)/, "");
  if (folder === "") throw new UsageError(`${from} is no database URL: pglite: needs a folder, as in pglite:./data`);
  if (folder.includes("@") && text.startsWith("pglite://"))
    throw new UsageError(`${from} is no database URL: pglite: takes a folder, as in pglite:./data, and no password`);
  return { kind: "pglite", text: folder, where: printable(`PGlite in ${folder}`) };
}

function hintFor(text: string): string {
  if (/^jdbc:/i.test(text)) return `. Leave out the jdbc: in front of it. ${FORMS}`;
  const [, scheme = ""] = /^(mysql2?|mariadb|sqlite|sqlserver|mssql|oracle|redis|file):/i.exec(text) ?? [];
  if (scheme !== "") return `, but one of ${NAMES[scheme.toLowerCase()] ?? scheme}. ${STORES}. ${FORMS}`;
  if (!text.includes("://") && text.includes("=")) return `. Pairs such as host=… are not understood. ${FORMS}`;
  return `. ${FORMS}`;
}
