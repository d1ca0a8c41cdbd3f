import { PermanentError, TxboxError } from "./errors.ts";
import { whyNotJson } from "./json-check.ts";
import { valueKind } from "./value-kind.ts";

const BYTES = "application/octet-stream";
const JSON_TYPE = /^(?:application\/json|text\/json|[^;]*\+json)\s*(?:;|$)/i;
const TEXT_TYPE =
  /^(?:text\/|application\/(?:xml|yaml|javascript|x-www-form-urlencoded)\s*(?:;|$)|[^;]*\+(?:xml|yaml)\s*(?:;|$))/i;

export interface EncodedPayload {
  /** JSON text, or bytes. */
  body: string | Uint8Array;
  bytes: number;
  /** Undefined: JSON, the default that needs no header. */
  contentType: string | undefined;
}

/** JSON unless the payload is bytes, or text that `contentType` says is not JSON. */
export function encodePayload(payload: unknown, contentType: string | undefined): EncodedPayload {
  if (payload instanceof Uint8Array) return bytesOf(payload, contentType ?? BYTES);
  if (contentType !== undefined && !JSON_TYPE.test(contentType)) {
    if (typeof payload === "string") return bytesOf(Buffer.from(payload, "utf8"), contentType);
    throw unserialisable(
      `payload is ${valueKind(payload)}, but its contentType is ${contentType}`,
      "Give a string or a Uint8Array, or leave contentType out",
    );
  }
  const body = toJson(payload, "payload");
  return { body, bytes: Buffer.byteLength(body), contentType };
}

/** JSON text of a value; throws `invalid_message` naming the part that JSON would drop or cannot hold. */
export function toJson(value: unknown, field: string): string {
  let text: string | undefined;
  let cause: unknown;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    cause = error;
  }
  const reason = whyNotJson(value, field);
  if (reason !== undefined)
    throw unserialisable(reason, "Give values that JSON can hold, or a Uint8Array", cause, field);
  if (text === undefined) {
    const why = cause instanceof Error ? cause.message : "its toJSON() gives undefined";
    throw unserialisable(
      `${field} cannot be made into JSON: ${why}`,
      "Give values that JSON can hold, or a Uint8Array",
      cause,
      field,
    );
  }
  return text;
}

/** What the handler gets: parsed JSON, text, or bytes, by content type. Anything else can never work. */
export function decodePayload(body: string | Uint8Array, contentType: string | undefined): unknown {
  if (isJsonType(contentType)) {
    try {
      return JSON.parse(typeof body === "string" ? body : utf8(body)) as unknown;
    } catch (error) {
      throw new PermanentError("The payload is not valid JSON", {
        field: "payload",
        fix: "Set the contentType header to what the payload is",
        cause: error,
      });
    }
  }
  if (typeof body === "string" || !TEXT_TYPE.test(contentType ?? "")) return body;
  try {
    return utf8(body);
  } catch (error) {
    throw new PermanentError(`The payload is ${contentType} but not valid UTF-8`, { field: "payload", cause: error });
  }
}

/** Without a content type a body is JSON. */
export function isJsonType(contentType: string | undefined): boolean {
  return contentType === undefined || JSON_TYPE.test(contentType);
}

const decoder = new TextDecoder("utf-8", { fatal: true });

/** The text of bytes, without a byte order mark; throws when they are none. */
export function utf8(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

function bytesOf(body: Uint8Array, contentType: string): EncodedPayload {
  return { body, bytes: body.byteLength, contentType };
}

function unserialisable(message: string, fix: string, cause?: unknown, field = "payload"): TxboxError {
  return new TxboxError("invalid_message", message, { field, fix, cause });
}
