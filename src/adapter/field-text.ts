import { PermanentError } from "../core/errors.ts";
import { valueKind } from "../core/value-kind.ts";
import { decodeText, type Transport } from "./transport.ts";

/** A field that must be text where it is there; throws a PermanentError when it is anything else. */
export function fieldText(
  fields: Readonly<Record<string, unknown>>,
  name: string,
  transport: Transport,
): string | undefined {
  const value = fields[name];
  if (value === undefined) return undefined;
  // Where headers are ASCII, this character stands for bytes that the client could not read: two ids could become one.
  if (typeof value !== "string" || (transport.asciiOnly && value.includes("\uFFFD"))) throw brokenField(name, value);
  return decodeText(value, transport);
}

export function brokenField(name: string, value: unknown): PermanentError {
  const shown = typeof value === "string" ? JSON.stringify(value.slice(0, 100)) : valueKind(value);
  return new PermanentError(`The header ${name} of this message is broken: ${shown}`, {
    field: name,
    fix: "Its producer must write it as txbox or CloudEvents do, or leave out all of their headers",
  });
}
