import type { EventDefinition } from "./contract.ts";
import { TxboxError } from "./errors.ts";
import { nearest } from "./options.ts";
import type { StandardSchema } from "./standard-schema.ts";
import { MAX_NAME_BYTES, textFault } from "./text-fault.ts";
import { shownValue, valueKind } from "./value-kind.ts";

/** What was agreed about a message type, checked. */
export interface EventContract {
  readonly type: string;
  readonly stream: string;
  readonly version: number;
  readonly schema: StandardSchema;
  /** The first makes version 1 into version 2. */
  readonly upcasts: readonly ((old: unknown) => unknown)[];
}

const FIELDS: readonly (keyof EventDefinition)[] = ["stream", "schema", "version", "upcast"];

/** Throws `invalid_option` for what cannot be a contract, naming the event and the field. */
export function readDefinitions(definitions: unknown): ReadonlyMap<string, EventContract> {
  if (!isObject(definitions)) {
    throw invalid(undefined, `defineEvents takes an object, got ${valueKind(definitions)}`, FORM);
  }
  const contracts = new Map<string, EventContract>();
  for (const [type, definition] of Object.entries(definitions)) contracts.set(type, readDefinition(type, definition));
  if (contracts.size === 0) {
    throw invalid(
      undefined,
      "defineEvents was given no events",
      `${FORM}, or call defineEvents<Events>() for types only`,
    );
  }
  return contracts;
}

const FORM = 'Pass { order_created: { stream: "orders", schema } }';

function readDefinition(type: string, definition: unknown): EventContract {
  if (isSchema(definition)) {
    throw invalid(type, `${type} is a schema alone`, `Write ${type}: { stream: "…", schema }`);
  }
  if (!isObject(definition)) {
    throw invalid(type, `${type} must be an object, got ${valueKind(definition)}`, FORM);
  }
  for (const name of Object.keys(definition)) if (!FIELDS.includes(name as keyof EventDefinition)) unknown(type, name);
  const typeFault = textFault(type, MAX_NAME_BYTES);
  if (typeFault !== undefined) {
    const shown = shownValue(type.replaceAll("\0", ""));
    throw invalid(undefined, `The type ${shown} ${typeFault.what}`, typeFault.fix("the name of the type"));
  }
  const { stream, schema, version = 1, upcast = {} } = definition as Record<keyof EventDefinition, unknown>;
  if (typeof stream !== "string" || stream === "") {
    throw invalid(`${type}.stream`, `${type} needs the name of its stream, got ${shownValue(stream)}`, FORM);
  }
  const streamFault = textFault(stream, MAX_NAME_BYTES);
  if (streamFault !== undefined) {
    throw invalid(`${type}.stream`, `The stream of ${type} ${streamFault.what}`, streamFault.fix("it"));
  }
  if (stream.startsWith("inbox.")) {
    const message = `${type}: the stream "${stream}" is kept for what a stored inbox has received`;
    throw invalid(`${type}.stream`, message, "Use another name");
  }
  if (typeof version !== "number" || !Number.isSafeInteger(version) || version < 1) {
    const fix = "Begin with 1, and raise it by 1 with each change that breaks";
    throw invalid(`${type}.version`, `${type}: version must be a whole number from 1, got ${shownValue(version)}`, fix);
  }
  return { type, stream, version, schema: readSchema(type, schema), upcasts: readUpcasts(type, version, upcast) };
}

function readSchema(type: string, schema: unknown): StandardSchema {
  const field = `${type}.schema`;
  if (schema === undefined) throw invalid(field, `${type} has no schema`, `${FORM}. ${LIBRARIES}`);
  if (!isSchema(schema)) {
    throw invalid(field, `The schema of ${type}, ${valueKind(schema)}, is no Standard Schema`, LIBRARIES);
  }
  // Valibot says it. Of others it is only known when they are asked.
  if (schema["~standard"].vendor === "valibot" && "async" in schema && schema.async === true) throw asynchronous(type);
  return schema;
}

const LIBRARIES = "Use zod 3.24, valibot 1, arktype 2, or later, or another library of https://standardschema.dev";

/** A check that waits would hold the transaction of the caller open, and could hang for ever. */
export function asynchronous(type: string): TxboxError {
  const fix = "Use a schema without asynchronous checks, and do those before you enqueue, or in the handler";
  return invalid(`${type}.schema`, `The schema of ${type} is asynchronous`, fix);
}

/** A schema that was made by hand, or a library that keeps to no standard. */
export function noResult(type: string, result: unknown): TxboxError {
  const fix = "Its validate has to return { value } or { issues }, as standardschema.dev says";
  return invalid(`${type}.schema`, `The schema of ${type} gave ${valueKind(result)} instead of a result`, fix);
}

function readUpcasts(type: string, version: number, upcast: unknown): EventContract["upcasts"] {
  const field = `${type}.upcast`;
  if (!isObject(upcast)) {
    throw invalid(field, `${type}: upcast must be an object, got ${valueKind(upcast)}`, "Write { 1: (old) => … }");
  }
  const before = Array.from({ length: Math.min(version - 1, MAX_STEPS) }, (_, i) => i + 1);
  if (before.length < version - 1) {
    throw invalid(`${type}.version`, `${type}: version ${version} is too high`, "Raise it by 1 with each change");
  }
  const stray = Object.keys(upcast).find((name) => !before.some((step) => String(step) === name));
  if (stray !== undefined) {
    const steps =
      version === 1
        ? "Version 1 has none"
        : version === 2
          ? "There is one, from version 1"
          : `There is one for each version from 1 to ${version - 1}`;
    throw invalid(field, `${type} is version ${version} and has an upcast from ${shownValue(stray)}`, steps);
  }
  return before.map((step) => {
    const run = upcast[step];
    if (typeof run === "function") return run as (old: unknown) => unknown;
    const fix = `Add upcast: { ${step}: (old) => … }, which makes a payload of version ${step} into one of version ${step + 1}`;
    if (run !== undefined) throw invalid(field, `${type}: the upcast from ${step} is ${valueKind(run)}`, fix);
    throw invalid(field, `${type} is version ${version} and has no upcast from version ${step}`, fix);
  });
}

const MAX_STEPS = 10_000;

function unknown(type: string, name: string): never {
  const near = nearest(name, FIELDS);
  const fix = near === undefined ? `It has ${FIELDS.join(", ")}` : `Did you mean "${near}"?`;
  throw invalid(`${type}.${name}`, `${type} has no field "${name}"`, fix);
}

/** Some libraries have schemas that are functions. */
function isSchema(value: unknown): value is StandardSchema {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  const standard: unknown = (value as Partial<StandardSchema>)["~standard"];
  return isObject(standard) && typeof standard["validate"] === "function";
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function invalid(field: string | undefined, message: string, fix: string): TxboxError {
  return new TxboxError("invalid_option", message, field === undefined ? { fix } : { field, fix });
}
