import type { Document } from "./mongodb-client.ts";

/** BSON nests 100 levels with ease; deeper values are kept as text. */
const MAX_DEPTH = 60;

export interface StoredValue {
  value: unknown;
  /** "json": the value is JSON text, because a document cannot hold it as it is. */
  format: "json" | undefined;
}

/** JSON text as a value that people can query; as text where BSON would change or refuse it. */
export function storedValue(json: string): StoredValue {
  const value = JSON.parse(json) as unknown;
  return fits(value, 0) && isReadRight(json, value) ? { value, format: undefined } : { value: json, format: "json" };
}

/** V8 13.6 reads a name with an escape, such as "\n", as "\\" when it has met that name in the same place before. */
function isReadRight(json: string, value: unknown): boolean {
  return !json.includes("\\") || JSON.stringify(value) === json;
}

function fits(value: unknown, depth: number): boolean {
  // UTF-8 has no half of a surrogate pair, and JSON no infinite number or negative zero, which foreign texts may stand for.
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value === "number") return Number.isFinite(value) && !Object.is(value, -0);
  if (typeof value !== "object" || value === null) return true;
  if (depth >= MAX_DEPTH) return false;
  if (Array.isArray(value)) return value.every((item) => fits(item, depth + 1));
  return Object.entries(value).every(([name, item]) => isPlainName(name) && fits(item, depth + 1));
}

/** Names that mean something to MongoDB or to the driver are not stored as names. */
function isPlainName(name: string): boolean {
  return !(
    name.startsWith("$") ||
    name.includes(".") ||
    name.includes("\0") ||
    !name.isWellFormed() ||
    // The driver takes an array under such a name, "toString" for one, for a field that it should leave as raw bytes.
    name in Object.prototype ||
    name === "_bsontype"
  );
}

/** The JSON text of a stored value, or its bytes. */
export function bodyOf({ payload, payload_format }: Document): string | Uint8Array {
  if (payload instanceof Uint8Array) return payload;
  if (payload_format === "json" && typeof payload === "string") return payload;
  return JSON.stringify(payload) ?? "null";
}
