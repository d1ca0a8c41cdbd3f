import { createHash } from "node:crypto";
import { decodePayload, isJsonType, utf8 } from "../core/codec.ts";
import type { PreparedMessage } from "../core/contracts.ts";
import { laneOf } from "../core/lane.ts";
import { PermanentError } from "../core/errors.ts";
import type { IncomingMessage } from "../core/message.ts";
import { plainIncoming } from "../core/plain-message.ts";
import { textOrNull } from "../core/text-or-null.ts";

/** The stream of a consumer's own log, when it stores before it handles. */
export function storedStream(consumer: string): string {
  return `inbox.${consumer}`;
}

interface Origin {
  stream?: string | undefined;
  source?: string | undefined;
  position?: string | undefined;
  createdAt?: string | undefined;
  /** A key that the log could not hold as it was. */
  key?: string | undefined;
  /** The body was text, which the log has as bytes. */
  text?: TextEncoding | undefined;
}

type TextEncoding = "utf8" | "utf16le";

const ORIGIN = "txboxOrigin";

/** A received message as one to be written into the receiver's own log: the same, but for stream and position. */
export function toStored(consumer: string, id: string, type: string, message: IncomingMessage): PreparedMessage {
  const { correlationId, ...rest } = message.headers;
  const key = storableKey(message.key);
  const origin: Origin = {
    stream: message.stream,
    source: message.source,
    position: message.position?.toString(),
    createdAt: message.createdAt?.toISOString(),
    key: key === message.key ? undefined : readableKey(message.key),
  };
  const { body, text } = storableBody(message);
  origin.text = text;
  const headers = headersText({ ...rest, [ORIGIN]: origin });
  return {
    id,
    // The receipt, written in the same transaction, is what keeps a repeat out.
    idChosen: false,
    stream: storedStream(consumer),
    type,
    key,
    lane: laneOf(key),
    aggregateType: textOrNull(message.aggregateType),
    aggregateId: textOrNull(message.aggregateId),
    correlationId: textOrNull(correlationId),
    body,
    headers,
    size: Buffer.byteLength(body) + Buffer.byteLength(headers),
    deliverAt: null,
  };
}

/** The other way: what the handler sees is the message as it was sent. */
export function fromStored(message: IncomingMessage): IncomingMessage {
  const { [ORIGIN]: origin, ...headers } = message.headers;
  const { stream, source, position, createdAt, key = message.key, text } = (origin ?? {}) as Origin;
  const plain = plainIncoming(message);
  return {
    ...plain,
    body: text === undefined || typeof plain.body === "string" ? plain.body : Buffer.from(plain.body).toString(text),
    key,
    stream,
    ...(source === undefined ? {} : { source }),
    position: position === undefined ? undefined : BigInt(position),
    createdAt: createdAt === undefined ? message.createdAt : new Date(createdAt),
    headers,
  };
}

/** A key that no index holds is replaced by its hash: messages of one key keep their order. */
function storableKey(key: unknown): string | null {
  if (typeof key !== "string" || key === "") return null;
  return textOrNull(key) ?? `sha256:${createHash("sha256").update(key, "utf16le").digest("hex")}`;
}

function readableKey(key: unknown): string | undefined {
  return textOrNull(key, Number.POSITIVE_INFINITY) ?? undefined;
}

/**
 * The log has JSON as text, which people can read in the table, and everything else as bytes. What the handler could not
 * decode fails here, not later.
 */
function storableBody({ body, headers }: IncomingMessage): { body: string | Uint8Array; text?: TextEncoding } {
  const payload = decodePayload(body, headers.contentType);
  if (isJsonType(headers.contentType)) {
    const json = typeof body === "string" ? escapeSurrogates(body) : utf8(body);
    return isDeep(json, payload) ? { body: Buffer.from(json, "utf8"), text: "utf8" } : { body: json };
  }
  if (typeof body !== "string") return { body };
  const text = body.isWellFormed() ? "utf8" : "utf16le";
  return { body: Buffer.from(body, text), text };
}

/** Half of a pair can only be inside a string of JSON, where its escape means the same. */
function escapeSurrogates(json: string): string {
  if (json.isWellFormed()) return json;
  return json.replaceAll(/\p{Surrogate}/gu, (half) => `\\u${half.charCodeAt(0).toString(16)}`);
}

/** Databases read JSON with a stack of their own, which ends sooner than that of JavaScript. */
const MAX_DEPTH = 500;

function isDeep(json: string, payload: unknown): boolean {
  return json.length > 2 * MAX_DEPTH && reaches(payload, MAX_DEPTH);
}

function reaches(value: unknown, depth: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return depth === 0 || Object.values(value).some((item) => reaches(item, depth - 1));
}

/** Some clients give numbers of 64 bits as a bigint. */
function headersText(headers: object): string {
  try {
    return JSON.stringify(headers, (_, value: unknown) => (typeof value === "bigint" ? String(value) : value));
  } catch (error) {
    throw new PermanentError("The headers of the message cannot be made into JSON", { field: "headers", cause: error });
  }
}
