import { valueKind } from "./value-kind.ts";

/**
 * Says which part of a value JSON would drop, empty or refuse, undefined when there is none. JSON.stringify alone
 * silently loses functions, symbols, maps and promises; an event that lost a field is worse than an error.
 */
export function whyNotJson(value: unknown, path: string): string | undefined {
  return inspect(value, path, []);
}

/** Well before JSON.stringify or the database run out of stack. */
const MAX_DEPTH = 1000;
const EMPTY_IN_JSON = [Map, Set, WeakMap, WeakSet, Promise, ArrayBuffer, RegExp, Error] as const;

function inspect(value: unknown, path: string, above: object[]): string | undefined {
  switch (typeof value) {
    case "function":
    case "symbol":
      return `${path} is ${valueKind(value)}`;
    case "number":
      return Number.isFinite(value) ? undefined : `${path} is ${value}, which JSON turns into null`;
    case "bigint":
      // Some programs give BigInt a toJSON.
      return "toJSON" in BigInt.prototype ? undefined : `${path} is a bigint`;
    case "undefined":
      // Optional properties are often undefined, and JSON leaves them out; only a whole payload must not be.
      return above.length === 0 ? `${path} is undefined` : undefined;
    case "object":
      return value === null ? undefined : inspectObject(value, path, above);
    default:
      return undefined;
  }
}

function inspectObject(value: object, path: string, above: object[]): string | undefined {
  if ("toJSON" in value && typeof value.toJSON === "function") return undefined;
  if (above.length >= MAX_DEPTH) return `${path.slice(0, 50)}… is nested deeper than ${MAX_DEPTH} levels`;
  if (above.includes(value)) return `${path} refers back to an object that contains it (a cycle)`;
  above.push(value);
  let reason: string | undefined;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length && reason === undefined; i++) {
      reason = isPlainScalar(value[i]) ? undefined : inspect(value[i], `${path}[${i}]`, above);
    }
  } else {
    reason = emptied(value, path);
    if (reason === undefined) {
      for (const [name, inner] of Object.entries(value)) {
        if (isPlainScalar(inner)) continue;
        reason = inspect(inner, `${path}.${name}`, above);
        if (reason !== undefined) break;
      }
    }
  }
  above.pop();
  return reason;
}

function emptied(value: object, path: string): string | undefined {
  if (Object.getPrototypeOf(value) === Object.prototype) return undefined;
  for (const kind of EMPTY_IN_JSON) {
    if (value instanceof kind) return `${path} is ${valueKind(value)}, which JSON turns into {}`;
  }
  return undefined;
}

/** Spares the building of a path for what is most of every payload. */
function isPlainScalar(value: unknown): boolean {
  return (
    typeof value === "string" ||
    Number.isFinite(value) ||
    typeof value === "boolean" ||
    value === null ||
    value === undefined
  );
}
