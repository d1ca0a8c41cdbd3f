import { describeError, PermanentError } from "../core/errors.ts";
import type { Headers, IncomingMessage, Message } from "../core/message.ts";
import {
  addContentType,
  cloudEventFields,
  isStructuredEvent,
  JSON_TYPE,
  readCloudEvent,
  readStructuredEvent,
} from "./cloud-events.ts";
import { brokenField, fieldText } from "./field-text.ts";
import { packFields, unpackFields } from "./packed-fields.ts";
import { encodeText, put, type Fields, type Transport } from "./transport.ts";

/** How a message's fields travel beside its body: under names of our own, or as CloudEvents 1.0 in binary mode. */
export type EnvelopeFormat = "native" | "cloudevents";

/** Headers that have a name known everywhere; the rest keep the name their user gave them. */
const STANDARD: ReadonlyMap<string, string> = new Map([
  ["correlationId", "correlation-id"],
  ["traceparent", "traceparent"],
  ["contentType", "content-type"],
]);
const STANDARD_NAMES = new Map(Array.from(STANDARD, ([name, wire]) => [wire, name]));

/** What has no plain text form travels here together, as JSON of ASCII characters only. */
const OTHER_HEADERS = "txbox-headers";
const PLAIN_NAME = /^[A-Za-z][\w.-]{0,99}$/;
const RESERVED = /^(?:txbox-|ce[-_]|cloudEvents[:_]|content-type$|correlation-id$|traceparent$)/i;
const MAX_PLAIN = 8192;

/** The fields to send beside a message's body, as text by name. */
export function encodeEnvelope(
  message: Message,
  format: EnvelopeFormat,
  transport: Transport,
  source?: string,
): Fields {
  const fields = format === "native" ? nativeFields(message, transport) : cloudEventFields(message, transport, source);
  addHeaders(fields, message.headers, transport, format);
  if (format === "cloudevents") addContentType(fields, message, transport);
  return fields;
}

function nativeFields(message: Message, transport: Transport): Fields {
  const fields: Fields = {
    "txbox-id": encodeText(message.id, transport),
    "txbox-type": encodeText(message.type, transport),
    "txbox-stream": encodeText(message.stream, transport),
    "txbox-position": String(message.position),
    "txbox-created-at": isoTime(message.createdAt),
  };
  const { key, aggregateType, aggregateId } = message;
  if (key !== null) fields["txbox-key"] = encodeText(key, transport);
  if (aggregateType !== null) fields["txbox-aggregate-type"] = encodeText(aggregateType, transport);
  if (aggregateId !== null) fields["txbox-aggregate-id"] = encodeText(aggregateId, transport);
  return fields;
}

let lastTime = Number.NaN;
let lastText = "";

/** Messages of one transaction share their time, and writing it out is expensive. */
function isoTime(date: Date): string {
  const time = date.getTime();
  if (time === lastTime) return lastText;
  lastText = date.toISOString();
  lastTime = time;
  return lastText;
}

function addHeaders(fields: Fields, headers: Headers, transport: Transport, format: EnvelopeFormat): void {
  let others: Record<string, unknown> | undefined;
  for (const name in headers) {
    const value = headers[name];
    if (value === undefined) continue;
    const standard = STANDARD.get(name);
    if (standard !== undefined && isPlain(value, transport)) fields[standard] = value;
    else if (standard === undefined && isPlain(value, transport) && isOwnName(name, transport)) fields[name] = value;
    else put((others ??= {}), name, value);
  }
  // A CloudEvent always names its type: here one sees that the message did so itself.
  if (format === "cloudevents" && headers.contentType === JSON_TYPE) (others ??= {})["contentType"] = JSON_TYPE;
  if (others !== undefined) fields[OTHER_HEADERS] = packFields(others);
}

/** Names that every object has confuse clients that read headers into one. */
function isOwnName(name: string, { reserved }: Transport): boolean {
  return PLAIN_NAME.test(name) && !RESERVED.test(name) && reserved?.test(name) !== true && !(name in Object.prototype);
}

function isPlain(value: unknown, { asciiOnly }: Transport): value is string {
  if (typeof value !== "string" || value === "" || value.length > MAX_PLAIN) return false;
  // eslint-disable-next-line no-control-regex -- these are the characters that need care
  return asciiOnly
    ? /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value)
    : value.isWellFormed() && !/[\0\r\n]/.test(value);
}

/**
 * A message from what a broker delivered: ours, a CloudEvent, or one of a producer that knows neither, whose fields
 * become headers. Throws a PermanentError for an envelope that is broken, and nothing else, whatever it holds.
 */
export function decodeEnvelope(
  fields: Readonly<Record<string, unknown>>,
  body: string | Uint8Array,
  transport: Transport,
): IncomingMessage {
  try {
    return open(fields, body, transport);
  } catch (error) {
    if (error instanceof PermanentError) throw error;
    throw new PermanentError(`The envelope of this message cannot be read: ${describeError(error)}`, { cause: error });
  }
}

function open(
  fields: Readonly<Record<string, unknown>>,
  body: string | Uint8Array,
  transport: Transport,
): IncomingMessage {
  const headers: Headers = {};
  for (const name in fields) {
    const value = fields[name];
    const standard = STANDARD_NAMES.get(name.toLowerCase());
    if (standard !== undefined) headers[standard] ??= value;
    else if (!RESERVED.test(name) && value !== undefined) put(headers, name, value);
  }
  const others = unpackFields(OTHER_HEADERS, fields[OTHER_HEADERS]);
  // Spread, never assigned: a header may be named "__proto__".
  if (fields["txbox-id"] !== undefined) {
    return { ...readNative(fields, transport), headers: { ...headers, ...others }, body };
  }
  const event = readCloudEvent(fields, transport);
  if (event === undefined && isStructuredEvent(headers.contentType)) {
    delete headers.contentType;
    const inside = readStructuredEvent(body);
    return { ...inside, headers: { ...headers, ...inside.headers, ...others } };
  }
  const all = { ...headers, ...event?.headers };
  // Of our own events: it was added for readers that need one.
  if (event?.stream !== undefined && all.contentType === JSON_TYPE) delete all.contentType;
  return { ...event, headers: { ...all, ...others }, body };
}

function readNative(fields: Readonly<Record<string, unknown>>, transport: Transport): Partial<IncomingMessage> {
  const text = (name: string): string | undefined => fieldText(fields, name, transport);
  const position = text("txbox-position");
  if (position !== undefined && !/^\d{1,19}$/.test(position)) throw brokenField("txbox-position", position);
  const created = text("txbox-created-at");
  const createdAt = created === undefined ? undefined : new Date(created);
  if (createdAt !== undefined && Number.isNaN(createdAt.getTime())) throw brokenField("txbox-created-at", created);
  return {
    id: text("txbox-id"),
    type: text("txbox-type"),
    stream: text("txbox-stream"),
    key: text("txbox-key") ?? null,
    aggregateType: text("txbox-aggregate-type") ?? null,
    aggregateId: text("txbox-aggregate-id") ?? null,
    position: position === undefined ? undefined : BigInt(position),
    createdAt,
  };
}
