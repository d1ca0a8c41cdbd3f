import { describeError, TxboxError } from "../core/errors.ts";
import type { EventContract } from "../core/event-contract.ts";
import type { StandardJsonSchema } from "../core/standard-schema.ts";

/** JSON Schema, draft 7: what AsyncAPI takes without plugins, and all libraries write. */
export type JsonSchema = Readonly<Record<string, unknown>>;

export const DRAFT = "http://json-schema.org/draft-07/schema#";

/** The JSON Schema of what is written for an event: of what its schema takes, since that is what producers give. */
export function jsonSchemaOf({ type, schema }: EventContract): JsonSchema {
  const { vendor, jsonSchema } = (schema as unknown as Partial<StandardJsonSchema> & StandardJsonSchema)["~standard"];
  if (typeof jsonSchema?.input !== "function") {
    throw new TxboxError("invalid_option", `The schema of ${type} (${vendor}) cannot say itself in JSON Schema`, {
      field: `${type}.schema`,
      fix: "Use zod 4.2, arktype 2.1.28, or later; with valibot toStandardJsonSchema(schema) of @valibot/to-json-schema",
    });
  }
  try {
    const { $schema: _, ...rest } = jsonSchema.input({
      target: "draft-07",
      ...(vendor === "zod" ? { libraryOptions: { override: dateAsText, unrepresentable: "any" } } : {}),
    });
    return rest;
  } catch (error) {
    throw new TxboxError("invalid_option", `The schema of ${type} has no JSON Schema: ${describeError(error)}`, {
      field: `${type}.schema`,
      fix: "Give it a form that JSON has, such as a text for a date",
      cause: error,
    });
  }
}

interface ZodContext {
  readonly zodSchema: { readonly _zod?: { readonly def?: { readonly type?: string } } };
  readonly jsonSchema: Record<string, unknown>;
}

/** JSON writes a Date as a text, and `z.coerce.date()` reads it. Zod has no word for it. */
function dateAsText({ zodSchema, jsonSchema }: ZodContext): void {
  if (zodSchema._zod?.def?.type === "date") Object.assign(jsonSchema, { type: "string", format: "date-time" });
}
