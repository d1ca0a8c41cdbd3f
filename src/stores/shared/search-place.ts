import { createHash } from "node:crypto";
import type { MessageSearch } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";

/** Where a page of a search begins: in which part of the store, and after what. Null: at the beginning of the part. */
export interface SearchPlace {
  readonly part: string;
  readonly after: string | null;
}

/** A place as the caller gets it, bound to its search: in another one it would mean something else. */
export function writePlace(query: MessageSearch, { part, after }: SearchPlace): string {
  return `${nameOf(query)}.${Buffer.from(JSON.stringify([part, after])).toString("base64url")}`;
}

/** The place that a caller gives back; undefined: at the beginning. Each part of the store checks its own places. */
export function readPlace(query: MessageSearch): SearchPlace | undefined {
  if (query.after === undefined) return undefined;
  requirePlaceOf(query);
  try {
    const [, text = ""] = query.after.split(".");
    const place: unknown = JSON.parse(Buffer.from(text, "base64url").toString());
    const [part, after] = place as unknown[];
    if (typeof part === "string" && (after === null || typeof after === "string")) return { part, after };
  } catch {
    // Said below.
  }
  throw noPlace("is not `next` of a page");
}

/** Throws when `after` is of another search. */
export function requirePlaceOf(query: MessageSearch): void {
  const name = /^([0-9a-f]{16})\.[\w-]+$/.exec(query.after ?? `${nameOf(query)}.x`)?.[1];
  if (name === undefined) throw noPlace("is not `next` of a page");
  if (name !== nameOf(query)) throw noPlace("is of another search");
}

export function noPlace(what: string): TxboxError {
  return new TxboxError("invalid_option", `admin.search: after ${what}`, {
    field: "after",
    fix: "Give `next` of the page before, with the same fields as for that page; leave it out for the first page",
  });
}

function nameOf(query: MessageSearch): string {
  const given = Object.entries(query)
    .filter(([field]) => !["after", "limit", "contents"].includes(field))
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  return createHash("sha256").update(JSON.stringify(given)).digest("hex").slice(0, 16);
}
