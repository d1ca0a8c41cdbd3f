/**
 * What was given instead of the right thing, for error messages: `null`, `5`, `a string`, `an array`, `a Pool`. The content
 * of a string is left out, because it may be a URL with a password. Never throws.
 */
export function valueKind(value: unknown): string {
  switch (typeof value) {
    case "string":
      return value === "" ? "an empty string" : "a string";
    case "bigint":
      return `${value}n`;
    case "function":
    case "symbol":
      return `a ${typeof value}`;
    case "object":
      return value === null ? "null" : withArticle(className(value));
    default:
      return String(value);
  }
}

/** The same for an option that is a name or one of several choices: a short text is shown. */
export function shownValue(value: unknown): string {
  if (typeof value !== "string") return valueKind(value);
  return value.length > 100 ? `${value.length} characters` : JSON.stringify(value);
}

function className(value: object): string {
  try {
    if (Array.isArray(value)) return "array";
    const name: unknown = Object.getPrototypeOf(value)?.constructor?.name;
    return typeof name !== "string" || name === "" || name === "Object" ? "object" : name;
  } catch {
    // A proxy or a getter that throws.
    return "object";
  }
}

function withArticle(noun: string): string {
  // A Uint8Array, a URL and a User begin with a consonant when they are spoken.
  return `${/^(?:[aeio]|u(?!int|rl|ni|se|tf))/i.test(noun) ? "an" : "a"} ${noun}`;
}
