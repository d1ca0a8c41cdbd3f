import type { Document } from "./mongodb-client.ts";

/** BSON nests 100 levels with ease; deeper values are kept as text. */
const MAX_DEPTH = 60;
/** In BSON an array of small values takes seven times its JSON, and a document has 16 MB. */
const MAX_LENGTH = 2 * 1024 * 1024;

export interface StoredValue {
  value: unknown;
  /** "json": the value is JSON text, because a document cannot hold it as it is. */
  format: "json" | undefined;
}

/** JSON text as a value that people can query; as text where BSON or the driver would change it in any way. */
export function storedValue(json: string): StoredValue {
  if (json.length <= MAX_LENGTH) {
    const value = JSON.parse(json) as unknown;
    // Foreign JSON may have spaces, names that come twice and numbers that JavaScript cannot hold, such as 1e999 and -0.
    // V8 13.6 reads a name with an escape, such as "\n", as "\\" when it has met that name in the same place before.
    if (fits(value, 0) && JSON.stringify(value) === json) return { value, format: undefined };
  }
  return { value: json, format: "json" };
}

function fits(value: unknown, depth: number): boolean {
  // UTF-8 has no half of a surrogate pair.
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value !== "object" || value === null) return true;
  if (depth >= MAX_DEPTH) return false;
  if (Array.isArray(value)) return value.every((item) => fits(item, depth + 1));
  return Object.entries(value).every(([name, item]) => isPlainName(name) && fits(item, depth + 1));
}

/** Names that mean something to MongoDB, to the driver or to every object are not stored as names. */
function isPlainName(name: string): boolean {
  return !(
    name.startsWith("$") ||
    name.includes(".") ||
    name.includes("\0") ||
    name === "_bsontype" ||
    // The driver takes an array under such a name, "toString" for one, for a field that it should leave as raw bytes.
    name in Object.prototype ||
    !name.isWellFormed()
  );
}

/** The JSON text of a stored value, or its bytes. */
export function bodyOf({ payload, payload_format }: Document): string | Uint8Array {
  if (payload instanceof Uint8Array) return payload;
  if (payload_format === "json" && typeof payload === "string") return payload;
  return JSON.stringify(payload) ?? "null";
}
