const TYPES = ["null", "boolean", "number", "string", "array", "object"];

/** The types that a schema allows, by their names in JSON Schema. */
export function typesOf(schema: Readonly<Record<string, unknown>>): readonly string[] {
  const { type } = schema;
  if (typeof type === "string") return [type];
  if (Array.isArray(type)) return type as string[];
  const values = enumValues(schema);
  return values === undefined ? TYPES : [...new Set(values.map(typeOf))];
}

/** The values of a schema that lists them. */
export function enumValues(schema: Readonly<Record<string, unknown>>): readonly unknown[] | undefined {
  if ("const" in schema) return [schema["const"]];
  if (Array.isArray(schema["enum"])) return schema["enum"];
  return schema["type"] === "boolean" ? [false, true] : schema["type"] === "null" ? [null] : undefined;
}

/** Whether a listed value keeps the limits of a schema. */
export function valueFits(value: unknown, schema: Readonly<Record<string, unknown>>): boolean {
  const limit = (name: string): number | undefined => (typeof schema[name] === "number" ? schema[name] : undefined);
  if (typeof value === "string") {
    const { pattern } = schema;
    const length = Array.from(value).length;
    if (length < (limit("minLength") ?? 0) || length > (limit("maxLength") ?? Infinity)) return false;
    return typeof pattern !== "string" || matches(pattern, value);
  }
  if (typeof value !== "number") return true;
  if (value < (limit("minimum") ?? -Infinity) || value > (limit("maximum") ?? Infinity)) return false;
  if (value <= (limit("exclusiveMinimum") ?? -Infinity) || value >= (limit("exclusiveMaximum") ?? Infinity))
    return false;
  return Number.isInteger(value / (limit("multipleOf") ?? value)) || value === 0;
}

/** A pattern of another dialect cannot be judged: it counts as no match. */
function matches(pattern: string, value: string): boolean {
  try {
    return new RegExp(pattern).test(value);
  } catch {
    return false;
  }
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value === "number" && Number.isInteger(value) ? "integer" : typeof value;
}
