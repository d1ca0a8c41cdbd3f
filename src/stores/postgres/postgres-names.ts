import { createHash } from "node:crypto";
import { TxboxError } from "../../core/errors.ts";

const TABLES = [
  "message",
  "all_message",
  "kept_message",
  "segment",
  "enqueued_id",
  "scheduled",
  "relay",
  "cursor",
  "lane",
  "member",
  "blocked",
  "parked",
  "delivery",
  "dead",
  "edit",
  "change",
  "batch",
  "sample",
  "receipt",
  "receipt_floor",
  "message_status",
  "migration",
  "enqueue",
  "no_news_until",
  "settle",
  "settle_batch",
  "settle_once",
  "about",
  "lane_of",
  "enqueue_v1",
  "cancel_v1",
] as const;

export type TableName = (typeof TABLES)[number];

/** Quoted, schema-qualified names of every table, view and routine. */
export type Names = Readonly<Record<TableName, string>> & {
  readonly schema: string;
  /** The quoted name of a table made at run time, such as a segment. */
  of(table: string): string;
  /** Distinguishes this installation in advisory locks. */
  readonly lockScope: string;
  /** Of the publication, not quoted: one for each installation in a database. */
  readonly publication: string;
};

export interface NameOptions {
  schema: string;
  tablePrefix: string;
}

export function postgresNames({ schema, tablePrefix }: NameOptions): Names {
  requireIdentifier("schema", schema, 1, 63);
  requireIdentifier("tablePrefix", tablePrefix, 0, 30);
  const of = (table: string) => `${quote(schema)}.${quote(tablePrefix + table)}`;
  const tables = Object.fromEntries(TABLES.map((table) => [table, of(table)])) as Record<TableName, string>;
  const lockScope = `txbox:${schema}.${tablePrefix}`;
  const publication = tablePrefix === "" ? schema : shortName(`${schema}.${tablePrefix}`);
  return { ...tables, schema: quote(schema), of, lockScope, publication };
}

/** As long as a name may be. */
function shortName(name: string): string {
  if (Buffer.byteLength(name) <= 63) return name;
  return `txbox_${createHash("sha256").update(name).digest("hex").slice(0, 32)}`;
}

/** Puts configured names in the place of the default ones in a migration file. */
export function renameDefaults(sql: string, names: Names): string {
  // In one go: a configured name may look like a default one.
  return sql.replaceAll(/"txbox"(?:\."(\w+)")?|'txbox_lock_scope'/g, (found, table: string | undefined) => {
    if (found.startsWith("'")) return `$txbox_name$${names.lockScope}$txbox_name$`;
    return table === undefined ? names.schema : names.of(table);
  });
}

/** Function bodies of the migrations are quoted by these, so that no name inside may have one. */
const DOLLAR_QUOTE = /\$txbox_/;

function requireIdentifier(option: string, value: unknown, min: number, max: number): void {
  const fits =
    typeof value === "string" && value.length >= min && Buffer.byteLength(value) <= max && !value.includes("\0");
  if (fits && !DOLLAR_QUOTE.test(value)) return;
  if (fits) {
    throw new TxboxError("invalid_option", `createPostgresStore: ${option} holds a dollar quote of the migrations`, {
      field: option,
      fix: `Give ${option} a name without "$txbox_"`,
    });
  }
  throw new TxboxError("invalid_option", `createPostgresStore: ${option} must be ${min} to ${max} bytes long`, {
    field: option,
    fix: `Give ${option} a shorter name without NUL characters`,
  });
}

export function quote(identifier: string): string {
  return `"${identifier.replaceAll('"', '""')}"`;
}
