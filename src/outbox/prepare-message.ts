import { inheritedCausation, inheritInto, isCausationPath } from "../core/causation.ts";
import { types } from "node:util";
import { requirePayload } from "../core/check-payload.ts";
import { decodePayload, encodePayload } from "../core/codec.ts";
import type { PreparedMessage } from "../core/contracts.ts";
import { describeError, TxboxError } from "../core/errors.ts";
import type { EventContract } from "../core/event-contract.ts";
import type { Contracts } from "../core/event-map.ts";
import { laneOf } from "../core/lane.ts";
import type { Headers } from "../core/message.ts";
import { nearest } from "../core/options.ts";
import { MAX_NAME_BYTES, textFault } from "../core/text-fault.ts";
import { isPlainObject, toJson } from "../core/to-json.ts";
import { uuidv7, uuidv7At } from "../core/uuid.ts";
import { shownValue, valueKind } from "../core/value-kind.ts";

const MAX_KEY_BYTES = 1024;
const MAX_HEADER_BYTES = 64 * 1024;
const LAST_TIME = Date.UTC(9999, 11, 31);

const FIELDS = [
  "stream",
  "type",
  "payload",
  "key",
  "aggregateType",
  "aggregateId",
  "headers",
  "id",
  "deliverAt",
] as const;
const KNOWN: ReadonlySet<string> = new Set(FIELDS);

type Fields = { readonly [Name in (typeof FIELDS)[number]]?: unknown };

export interface PrepareOptions {
  readonly maxPayloadBytes: number;
  /** What is agreed about the message types; undefined: nothing, and payloads are not checked. */
  readonly contracts: Contracts | undefined;
}

/** Checks everything about a message and serialises it; throws a TxboxError that names the field and the fix. */
export function prepareMessage(
  message: unknown,
  options: PrepareOptions,
  moreHeaders?: Readonly<Record<string, string>>,
): PreparedMessage {
  try {
    return prepare(message, options, moreHeaders);
  } catch (error) {
    if (error instanceof TxboxError) throw error;
    // A getter or a proxy of the caller's own.
    const why = `The message cannot be read: ${describeError(error)}`;
    throw new TxboxError("invalid_message", why, { fix: "Give a plain object of plain values", cause: error });
  }
}

function prepare(
  message: unknown,
  { maxPayloadBytes, contracts }: PrepareOptions,
  moreHeaders: Readonly<Record<string, string>> | undefined,
): PreparedMessage {
  if (!isObject(message)) {
    throw invalidMessage(
      undefined,
      `A message must be an object, got ${valueKind(message)}`,
      "Pass { stream, type, payload }",
    );
  }
  for (const name of Object.keys(message)) if (!KNOWN.has(name)) throw unknownField(name);
  // Each field is read once: a getter could answer differently the next time.
  const fields: Fields = Object.fromEntries(FIELDS.map((name) => [name, (message as Fields)[name]]));
  const contract = contracts === undefined ? undefined : contractOf(contracts, fields.type);
  const stream = contract === undefined ? requireStream(fields.stream) : streamOf(contract, fields.stream);
  if (stream.startsWith("inbox.")) {
    throw invalidMessage(
      "stream",
      `Stream "${stream}" is kept for what a stored inbox has received`,
      "Use another name",
    );
  }
  const type = requireText("type", fields.type, MAX_NAME_BYTES);
  const id = optionalText("id", fields.id, MAX_NAME_BYTES);
  const aggregateType = optionalText("aggregateType", fields.aggregateType, MAX_NAME_BYTES);
  const aggregateId = optionalText("aggregateId", fields.aggregateId, MAX_KEY_BYTES);
  const key = optionalText("key", fields.key, MAX_KEY_BYTES) ?? aggregateId;
  const deliverAt = optionalDate(fields.deliverAt);
  const given = optionalHeaders(fields.headers);
  if (fields.payload === undefined) {
    throw invalidMessage("payload", "payload is undefined", "Give a payload; null is allowed");
  }
  const { body, bytes, contentType } = encodePayload(fields.payload, given?.contentType);
  if (bytes > maxPayloadBytes) throw tooLarge(bytes, maxPayloadBytes);
  const version = contract === undefined ? undefined : versionOf(contract, given);
  // As a handler will get it: a Date is a string by then.
  if (contract !== undefined) requirePayload(contract, decodePayload(body, contentType));
  const { correlationId, headers, headerBytes } = prepareHeaders(given, contentType, moreHeaders, version);
  return {
    id: id ?? newId(deliverAt),
    idChosen: id !== null,
    stream,
    type,
    key,
    lane: laneOf(key),
    aggregateType,
    aggregateId,
    correlationId,
    body,
    headers,
    size: bytes + headerBytes,
    deliverAt,
  };
}

/**
 * The id of a later message carries the time of its delivery: receipts are kept by the time inside the id, and one
 * that is delivered in a month must not look a month old then.
 */
function newId(deliverAt: Date | null): string {
  return deliverAt !== null && deliverAt.getTime() > Date.now() ? uuidv7At(deliverAt.getTime()) : uuidv7();
}

const NO_HEADERS = { correlationId: null, headers: "{}", headerBytes: 0 };

function prepareHeaders(
  given: Headers | undefined,
  contentType: string | undefined,
  more: Readonly<Record<string, string>> | undefined,
  schemaVersion: number | undefined,
) {
  const causation = inheritedCausation();
  const own = contentType ?? schemaVersion;
  if (given === undefined && causation === undefined && own === undefined && more === undefined) return NO_HEADERS;
  // What the caller gave comes first, then what listeners add, then what is inherited.
  const { correlationId = causation?.correlationId, ...rest }: Headers = { ...more, ...given };
  // A state of another trace than the one that the caller named.
  if (given?.traceparent !== undefined && given.tracestate === undefined) delete rest["tracestate"];
  if (causation !== undefined) inheritInto(rest, causation);
  if (contentType !== undefined) rest["contentType"] = contentType;
  if (schemaVersion !== undefined) rest["schemaVersion"] = schemaVersion;
  const headers = toJson(rest, "headers");
  const headerBytes = headers === "{}" ? 0 : Buffer.byteLength(headers);
  if (headerBytes > MAX_HEADER_BYTES) {
    throw invalidMessage(
      "headers",
      `headers have ${headerBytes} bytes, at most ${MAX_HEADER_BYTES} fit`,
      "Move data into the payload",
    );
  }
  return { correlationId: correlationId ?? null, headers, headerBytes };
}

function optionalHeaders(value: unknown): Headers | undefined {
  if (value === undefined) return undefined;
  if (!isObject(value) || !isPlainObject(value)) {
    throw invalidMessage("headers", "headers must be a plain object", "Pass { name: value }");
  }
  const headers: Headers = { ...value };
  if (typeof headers["toJSON"] === "function") {
    throw invalidMessage("headers", "headers.toJSON is a function", "Pass what it gives");
  }
  optionalText("headers.correlationId", headers.correlationId, MAX_KEY_BYTES);
  optionalText("headers.traceparent", headers.traceparent, MAX_NAME_BYTES);
  optionalText("headers.contentType", headers.contentType, MAX_NAME_BYTES);
  if (headers.causationPath !== undefined && !isCausationPath(headers.causationPath)) {
    const fix = "Leave it out: it is inherited inside a handler";
    throw invalidMessage("headers.causationPath", "causationPath must be an array of [module, type] pairs", fix);
  }
  return headers;
}

function contractOf(contracts: Contracts, given: unknown): EventContract {
  const type = requireText("type", given, MAX_NAME_BYTES);
  const contract = contracts.get(type);
  if (contract !== undefined) return contract;
  const known = [...contracts.keys()];
  const near = nearest(type, known);
  const fix = near === undefined ? `There are ${known.join(", ")}; add it to defineEvents` : `Did you mean "${near}"?`;
  throw invalidMessage("type", `events has no "${type}"`, fix);
}

function streamOf({ type, stream }: EventContract, given: unknown): string {
  if (given === undefined || given === stream) return requireStream(stream);
  const named = requireStream(given);
  throw invalidMessage("stream", `${type} belongs to the stream "${stream}", got "${named}"`, "Leave stream out");
}

/** The payload is checked as one of this version, so no other can be claimed for it. */
function versionOf({ type, version }: EventContract, given: Headers | undefined): number {
  const claimed = given?.schemaVersion;
  if (claimed === undefined || claimed === version || claimed === String(version)) return version;
  const message = `${type} is written as version ${version}, got schemaVersion ${shownValue(claimed)}`;
  throw invalidMessage("headers.schemaVersion", message, "Leave it out");
}

export function requireStream(value: unknown): string {
  return requireText("stream", value, MAX_NAME_BYTES);
}

/** A text that every store can hold: not empty, not too long, no NUL, well-formed. */
export function requireText(field: string, value: unknown, maxBytes: number): string {
  if (typeof value !== "string") {
    throw invalidMessage(field, `${field} must be a string, got ${valueKind(value)}`, `Give ${field} as a string`);
  }
  const fault = textFault(value, maxBytes);
  if (fault !== undefined) throw invalidMessage(field, `${field} ${fault.what}`, fault.fix(field));
  return value;
}

function optionalText(field: string, value: unknown, maxBytes: number): string | null {
  return value === undefined ? null : requireText(field, value, maxBytes);
}

function optionalDate(value: unknown): Date | null {
  if (value === undefined) return null;
  const time = types.isDate(value) ? Date.prototype.getTime.call(value) : Number.NaN;
  const fix = "Pass new Date(…); leave it out to deliver at once";
  if (Number.isNaN(time)) throw invalidMessage("deliverAt", "deliverAt must be a valid Date", fix);
  // No id could hold it, and few databases.
  if (time > LAST_TIME) throw invalidMessage("deliverAt", "deliverAt lies beyond the year 9999", fix);
  // A copy: the caller may go on with its own.
  return new Date(time);
}

export function invalidMessage(field: string | undefined, message: string, fix: string): TxboxError {
  return new TxboxError("invalid_message", message, field === undefined ? { fix } : { field, fix });
}

function unknownField(name: string): TxboxError {
  const near = nearest(name, FIELDS);
  const fix =
    near === undefined
      ? `It has ${FIELDS.join(", ")}; anything else goes into payload or headers`
      : `Did you mean "${near}"?`;
  return invalidMessage(name, `A message has no field "${name}"`, fix);
}

function tooLarge(bytes: number, max: number): TxboxError {
  return new TxboxError("payload_too_large", `payload has ${bytes} bytes, at most ${max} are allowed`, {
    field: "payload",
    fix: "Store the data elsewhere and enqueue a reference, or raise maxPayloadBytes of createOutbox",
  });
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
