import { types } from "node:util";
import { PermanentError, TxboxError } from "./errors.ts";
import { toJson } from "./to-json.ts";
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
  if (types.isUint8Array(payload)) return bytesOf(payload, contentType ?? BYTES);
  if (contentType !== undefined && !JSON_TYPE.test(contentType)) {
    if (typeof payload === "string") return bytesOf(utf8Of(payload), contentType);
    throw unserialisable(
      `payload is ${valueKind(payload)}, but its contentType is ${contentType}`,
      "Give a string or a Uint8Array, or leave contentType out",
    );
  }
  const body = toJson(payload, "payload");
  return { body, bytes: Buffer.byteLength(body), contentType };
}

/** What the handler gets: parsed JSON, text, or bytes, by content type. Anything else can never work. */
export function decodePayload(body: string | Uint8Array, contentType: unknown): unknown {
  if (contentType !== undefined && typeof contentType !== "string") {
    throw new PermanentError(`The contentType of the message is ${valueKind(contentType)}, not a text`, {
      field: "headers.contentType",
      fix: "Set it to what the payload is, or leave it out for JSON",
    });
  }
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

/** Half of a surrogate pair has no UTF-8, and would become another character. */
function utf8Of(text: string): Uint8Array {
  if (text.isWellFormed()) return Buffer.from(text, "utf8");
  throw unserialisable(
    "payload has half of a surrogate pair, which UTF-8 cannot hold",
    "Cut texts between characters, or call toWellFormed()",
  );
}

function bytesOf(body: Uint8Array, contentType: string): EncodedPayload {
  if (isDetached(body.buffer)) {
    throw unserialisable("payload is bytes of a buffer that was transferred away", "Enqueue before you transfer it");
  }
  return { body, bytes: body.byteLength, contentType };
}

function isDetached(buffer: ArrayBufferLike): boolean {
  return "detached" in buffer && buffer.detached;
}

function unserialisable(message: string, fix: string): TxboxError {
  return new TxboxError("invalid_message", message, { field: "payload", fix });
}
