import { isDeepStrictEqual, types } from "node:util";
import { encodePayload, isJsonType, utf8 } from "../../core/codec.ts";
import type { LetterEdit } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import type { Headers, Message } from "../../core/message.ts";
import { isPlainObject, toJson } from "../../core/to-json.ts";
import { valueKind } from "../../core/value-kind.ts";

/** What an outbox takes when nothing else was said; a letter that was larger may stay so. */
const MAX_BYTES = 1024 * 1024;
const MAX_HEADER_BYTES = 64 * 1024;

/** They say where a message came from, and what follows it is found by them. */
const ORIGIN = ["correlationId", "causationId", "causationPath", "traceparent", "tracestate"] as const;
/** Names of the envelope in which publishers send a message. */
const RESERVED = /^txbox-/i;

/** What a letter is from now on. */
export interface PreparedEdit {
  /** JSON text, or bytes. */
  body: string | Uint8Array;
  /** JSON text of the headers but for the correlation, which every store keeps by itself. */
  headers: string;
  /** Bytes of body and headers. */
  size: number;
}

/** An edit laid over what a letter is now. Throws a TxboxError that names the field, before anything is written. */
export function preparedEdit(letter: Pick<Message, "body" | "headers">, edit: LetterEdit): PreparedEdit {
  const given = edit.headers === undefined ? letter.headers : headersOf(edit.headers, letter.headers);
  const { correlationId: _, ...headers } = given;
  const { body, bytes, contentType } =
    "payload" in edit
      ? encoded(edit.payload, headers.contentType)
      : bodyOf("body" in edit ? edit.body : letter.body, headers.contentType);
  if (contentType !== undefined) headers.contentType = contentType;
  const most = Math.max(MAX_BYTES, Buffer.byteLength(letter.body));
  if (bytes > most) {
    throw new TxboxError("payload_too_large", `The edit has ${bytes} bytes, at most ${most} fit`, {
      field: "payload" in edit ? "payload" : "body",
      fix: "Store the data elsewhere and send a reference",
    });
  }
  const json = toJson(headers, "headers");
  const headerBytes = Buffer.byteLength(json);
  if (headerBytes > MAX_HEADER_BYTES)
    throw invalid(
      "headers",
      `have ${headerBytes} bytes, at most ${MAX_HEADER_BYTES} fit`,
      "Move data into the payload",
    );
  return { body, headers: json, size: bytes + (json === "{}" ? 0 : headerBytes) };
}

function headersOf(given: unknown, before: Headers): Headers {
  if (typeof given !== "object" || given === null || Array.isArray(given) || !isPlainObject(given))
    throw invalid("headers", `must be a plain object, got ${valueKind(given)}`, "Give { name: value }");
  const headers: Headers = { ...given };
  for (const name of Object.keys(headers)) {
    if (RESERVED.test(name))
      throw invalid(`headers.${name}`, "is a name that publishers use themselves", "Give it a name without txbox-");
  }
  for (const name of ORIGIN) {
    const [own, was] = [headers[name], before[name]];
    if (own !== undefined && !isDeepStrictEqual(own, was))
      throw invalid(`headers.${name}`, "says where the message came from, and stays", "Leave it out, or as it was");
    if (was !== undefined) headers[name] = was as never;
  }
  const { contentType = before.contentType } = headers;
  if (contentType !== undefined && (typeof contentType !== "string" || contentType === "" || contentType.length > 200))
    throw invalid("headers.contentType", "must be a text of 1 to 200 characters", 'Give it as in "application/json"');
  if (contentType !== undefined) headers.contentType = contentType;
  return headers;
}

function encoded(payload: unknown, contentType: string | undefined) {
  if (payload === undefined) throw invalid("payload", "is undefined", "Give a payload; null is allowed");
  return encodePayload(payload, contentType);
}

/** A body that fits its content type: JSON text, or bytes. */
function bodyOf(body: unknown, contentType: string | undefined) {
  if (typeof body !== "string" && !types.isUint8Array(body))
    throw invalid("body", `must be a text or a Uint8Array, got ${valueKind(body)}`, "Give `payload` for a value");
  if (!isJsonType(contentType)) {
    if (typeof body === "string" && !body.isWellFormed())
      throw invalid("body", "has half of a surrogate pair", "Cut texts between characters, or call toWellFormed()");
    const bytes = typeof body === "string" ? Buffer.from(body) : new Uint8Array(body);
    return { body: bytes, bytes: bytes.byteLength, contentType };
  }
  try {
    const text = typeof body === "string" ? body : utf8(body);
    if (!text.isWellFormed()) throw new Error("half of a surrogate pair");
    JSON.parse(text);
    return { body: text, bytes: Buffer.byteLength(text), contentType };
  } catch (cause) {
    const what = contentType === undefined ? "without a contentType" : `with the contentType ${contentType}`;
    throw new TxboxError("invalid_message", `admin.edit: body is not JSON, as one ${what} has to be`, {
      field: "body",
      fix: "Mend the JSON, or say in headers.contentType what it is",
      cause,
    });
  }
}

function invalid(field: string, what: string, fix: string): TxboxError {
  return new TxboxError("invalid_message", `admin.edit: ${field} ${what}`, { field, fix });
}
