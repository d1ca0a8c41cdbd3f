import { describeError, PermanentError, TxboxError, UnavailableError, type PayloadIssue } from "./errors.ts";
import { asynchronous, noResult, type EventContract } from "./event-contract.ts";
import type { Headers } from "./message.ts";
import { isPromise, runSchema } from "./run-schema.ts";
import type { SchemaIssue } from "./standard-schema.ts";
import { shownValue } from "./value-kind.ts";

/** At enqueue: throws `invalid_payload` for what a handler would refuse. `payload` is what JSON gives back of it. */
export function requirePayload(contract: EventContract, payload: unknown): void {
  const result = check(contract, payload);
  if (result.issues === undefined) return;
  throw new TxboxError("invalid_payload", `The payload of ${contract.type} does not fit: ${textOf(result.issues)}`, {
    field: "payload",
    fix: "It is checked in the form that JSON gives it, in which a Date is a string",
    issues: result.issues,
    cause: result.cause,
  });
}

/** A version that this process does not know yet: the message is for one that does. */
export class NewerVersionError extends UnavailableError {
  readonly version: number;

  constructor({ type, version: known }: EventContract, version: number) {
    super(`${type} has version ${version}, and this process knows it up to version ${known}`, {
      // Other types go on meanwhile. All newer versions share one route, because any sender may write any version.
      route: `${type} after version ${known}`,
      fix: "It waits for a process that knows it: bring the new version out",
    });
    this.version = version;
  }
}

/**
 * At the handler: the payload of any known version, upcast and checked, as the schema gives it. Throws NewerVersionError,
 * or PermanentError for what can never be handled.
 */
export function readPayload(contract: EventContract, headers: Headers, payload: unknown): unknown {
  const { type, version: known } = contract;
  const version = versionOf(type, headers.schemaVersion);
  if (version > known) throw new NewerVersionError(contract, version);
  const upcasted = upcast(contract, version, payload);
  const result = check(contract, upcasted, true);
  if (result.issues === undefined) return result.value;
  const form = version === known ? `version ${version}` : `version ${version}, upcast to ${known}`;
  throw new PermanentError(`The payload of ${type} (${form}) does not fit: ${textOf(result.issues)}`, {
    field: "payload",
    issues: result.issues,
    cause: result.cause,
  });
}

/** Brokers may carry it as text. A message without a version has the first one. */
function versionOf(type: string, given: unknown): number {
  if (given === undefined || given === null) return 1;
  const version = typeof given === "string" && /^\d{1,15}$/.test(given) ? Number(given) : given;
  const number = typeof version === "bigint" ? Number(version) : version;
  if (typeof number === "number" && Number.isSafeInteger(number) && number >= 1) return number;
  throw new PermanentError(`The schemaVersion of ${type} must be a whole number from 1, got ${shownValue(given)}`, {
    field: "headers.schemaVersion",
    fix: "Leave it out for version 1",
  });
}

function upcast({ type, upcasts }: EventContract, from: number, payload: unknown): unknown {
  let value = payload;
  for (const [i, step] of upcasts.entries()) {
    if (i + 1 < from) continue;
    try {
      value = step(value);
    } catch (error) {
      throw new PermanentError(`The upcast of ${type} from version ${i + 1} threw ${describeError(error)}`, {
        field: "payload",
        cause: error,
      });
    }
    if (isHeardPromise(value)) {
      throw new PermanentError(`The upcast of ${type} from version ${i + 1} gave a promise`, {
        field: "payload",
        fix: "Make it synchronous",
      });
    }
  }
  return value;
}

type Checked =
  | { readonly value: unknown; readonly issues?: undefined }
  | { readonly issues: readonly PayloadIssue[]; readonly cause?: unknown };

function check(contract: EventContract, payload: unknown, waits = false): Checked {
  const run = runSchema(contract.schema, payload);
  if ("thrown" in run) {
    return { issues: [{ path: [], message: `the schema threw ${describeError(run.thrown)}` }], cause: run.thrown };
  }
  if ("waits" in run) throw unusable(asynchronous(contract.type), contract, waits);
  if (!isResult(run.result)) throw unusable(noResult(contract.type, run.result), contract, waits);
  const { issues, value } = run.result;
  // Those of some libraries hold the whole payload.
  return issues === undefined ? { value } : { issues: issues.map(plainIssue) };
}

/** At the handler no message is at fault: they wait until the program is mended. */
function unusable(error: TxboxError, { type }: EventContract, waits: boolean): TxboxError {
  return waits ? new UnavailableError(error.message, { route: `${type}: its schema`, cause: error }) : error;
}

interface Result {
  readonly issues?: readonly SchemaIssue[];
  readonly value?: unknown;
}

function isResult(value: unknown): value is Result {
  if (typeof value !== "object" || value === null) return false;
  const { issues } = value as { issues?: unknown };
  return issues === undefined ? "value" in value : Array.isArray(issues);
}

function plainIssue({ message, path = [] }: SchemaIssue): PayloadIssue {
  // Not by its own map: the path of a library may be more than an array.
  const keys = Array.from(path, (part) => (typeof part === "object" ? part.key : part));
  return { path: keys.map((key) => (typeof key === "number" ? key : String(key))), message };
}

const SHOWN_ISSUES = 5;

function textOf(issues: readonly PayloadIssue[]): string {
  const shown = issues.slice(0, SHOWN_ISSUES).map(({ path, message }) => `${pathText(path)}: ${message}`);
  const more = issues.length - shown.length;
  return `${shown.join("; ")}${more > 0 ? `; and ${more} more` : ""}`;
}

function pathText(path: PayloadIssue["path"]): string {
  return path.reduce<string>((before, key) => {
    if (typeof key === "number" || /^\d+$/.test(key)) return `${before}[${key}]`;
    return /^[\w$]+$/.test(key) ? `${before}.${key}` : `${before}[${JSON.stringify(key)}]`;
  }, "payload");
}

/** The rejection of one that will not be used is handled here: an unhandled one would end the process. */
function isHeardPromise(value: unknown): boolean {
  if (!isPromise(value)) return false;
  Promise.resolve(value).catch(() => undefined);
  return true;
}
