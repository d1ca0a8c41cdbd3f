import { brokenField } from "./field-text.ts";

const BEYOND_ASCII = /[\u007f-\uffff]/;
/** JSON.parse takes any depth, but writing it again recurses. */
const MAX_DEPTH = 1000;

/** Fields as one text: JSON of printable ASCII characters only. For brokers that have few headers, or carry little in them. */
export function packFields(fields: Readonly<Record<string, unknown>>): string {
  const json = JSON.stringify(fields);
  if (!BEYOND_ASCII.test(json)) return json;
  return json.replaceAll(/[\u007f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The fields in the header of this name; throws a PermanentError when it is there and holds anything else. */
export function unpackFields(name: string, packed: unknown): Record<string, unknown> | undefined {
  if (packed === undefined) return undefined;
  try {
    const value: unknown = typeof packed === "string" ? JSON.parse(packed) : undefined;
    if (typeof value === "object" && value !== null && !Array.isArray(value) && !isDeeper(value, MAX_DEPTH)) {
      return value as Record<string, unknown>;
    }
  } catch {
    // Said below.
  }
  throw brokenField(name, packed);
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1));
}
