import { PermanentError } from "../../core/errors.ts";
import type { Headers, IncomingMessage, Message } from "../../core/message.ts";
import { decodeText, encodeText, type Fields, type Transport } from "./transport.ts";

/** The content type of a message that names none. */
export const JSON_TYPE = "application/json";
const BYTES_TYPE = "application/octet-stream";
const IS_JSON = /^(?:application\/json|text\/json|[^;]*\+json)\s*(?:;|$)/i;
const STRUCTURED = /^application\/cloudevents\+json\s*(?:;|$)/i;

/** CloudEvents 1.0 attributes and extensions; headers of the message are added by the envelope. */
export function cloudEventFields(message: Message, transport: Transport, source: string | undefined): Fields {
  const [prefix] = transport.cloudEventPrefixes;
  const fields: Fields = { [`${prefix}specversion`]: "1.0" };
  const put = (name: string, value: string | null): void => {
    if (value !== null) fields[prefix + name] = encodeText(value, transport);
  };
  put("id", message.id);
  put("source", source ?? `/${encodeURIComponent(message.stream.toWellFormed())}`);
  put("type", message.type);
  put("subject", message.aggregateId ?? message.key);
  put("time", message.createdAt.toISOString());
  put("partitionkey", message.key);
  put("sequence", String(message.position));
  put("stream", message.stream);
  put("aggregatetype", message.aggregateType);
  put("aggregateid", message.aggregateId);
  put("traceparent", message.headers.traceparent ?? null);
  return fields;
}

/** Binary mode needs a content type; each binding has a name for it. */
export function addContentType(fields: Fields, message: Message, transport: Transport): void {
  // One that cannot be a header travels with the other headers.
  fields["content-type"] ??= message.headers.contentType === undefined ? JSON_TYPE : BYTES_TYPE;
  if (transport.contentTypeAttribute === true) {
    fields[`${transport.cloudEventPrefixes[0]}datacontenttype`] = encodeText(fields["content-type"], transport);
  }
}

/** What a CloudEvent in binary mode says of the message; undefined when it is none. */
export function readCloudEvent(
  fields: Readonly<Record<string, unknown>>,
  transport: Transport,
): Partial<IncomingMessage> | undefined {
  const prefix = transport.cloudEventPrefixes.find((one) => typeof fields[`${one}specversion`] === "string");
  if (prefix === undefined) return undefined;
  const text = (name: string): string | undefined => {
    const value = fields[prefix + name];
    return typeof value === "string" ? decodeText(value, transport) : undefined;
  };
  const sequence = text("sequence");
  const time = new Date(text("time") ?? Number.NaN);
  const headers: Headers = {};
  const [correlationId, traceparent, contentType] = [
    text("correlationid"),
    text("traceparent"),
    text("datacontenttype"),
  ];
  if (correlationId !== undefined) headers.correlationId = correlationId;
  if (traceparent !== undefined) headers.traceparent = traceparent;
  if (contentType !== undefined) headers.contentType = contentType;
  return {
    // Unique for one source only: without it, events of two producers could be taken for one.
    id: text("stream") === undefined ? foreignId(text("source"), text("id")) : text("id"),
    type: text("type"),
    stream: text("stream"),
    key: text("partitionkey") ?? null,
    aggregateType: text("aggregatetype") ?? null,
    aggregateId: text("aggregateid") ?? null,
    position: sequence !== undefined && /^\d{1,18}$/.test(sequence) ? BigInt(sequence) : undefined,
    createdAt: Number.isNaN(time.getTime()) ? undefined : time,
    headers,
  };
}

function foreignId(source: string | undefined, id: string | undefined): string | undefined {
  return source === undefined || id === undefined ? id : `${source}#${id}`;
}

/** A whole CloudEvent in the body, as others send it: attributes and data in one JSON document. */
export function isStructuredEvent(contentType: unknown): boolean {
  return typeof contentType === "string" && STRUCTURED.test(contentType);
}

const NO_PREFIX: Transport = { cloudEventPrefixes: [""], asciiOnly: false };

/** The message in a structured CloudEvent; throws a PermanentError when the document is none. */
export function readStructuredEvent(
  document: string | Uint8Array,
): Partial<IncomingMessage> & { body: string | Buffer } {
  const event = parsedEvent(document);
  const attributes: Fields = {};
  for (const name in event) {
    const value = event[name];
    if (name === "data" || name === "data_base64") continue;
    if (typeof value === "string") attributes[name] = value;
    else if (typeof value === "number" || typeof value === "boolean") attributes[name] = String(value);
  }
  if ("data_base64" in event) attributes["datacontenttype"] ??= BYTES_TYPE;
  const known = readCloudEvent(attributes, NO_PREFIX);
  return { ...known, body: dataOf(event, attributes["datacontenttype"] ?? JSON_TYPE) };
}

function parsedEvent(document: string | Uint8Array): Record<string, unknown> {
  let event: unknown;
  try {
    event = JSON.parse(typeof document === "string" ? document : Buffer.from(document).toString());
  } catch (cause) {
    throw notAnEvent("it is no JSON", cause);
  }
  if (typeof event !== "object" || event === null || Array.isArray(event)) throw notAnEvent("it is no object");
  const attributes = event as Record<string, unknown>;
  for (const name of ["specversion", "id", "source", "type"]) {
    if (typeof attributes[name] !== "string") throw notAnEvent(`it has no ${name}`);
  }
  return attributes;
}

/** Text of another type than JSON travels as a JSON string, bytes in base64; no data at all is `null`. */
function dataOf({ data = null, data_base64: base64 }: Record<string, unknown>, contentType: string): string | Buffer {
  if (typeof base64 === "string") return Buffer.from(base64, "base64");
  if (typeof data === "string" && !IS_JSON.test(contentType)) return data;
  return JSON.stringify(data);
}

function notAnEvent(why: string, cause?: unknown): PermanentError {
  return new PermanentError(`The body of this message should be a CloudEvent, but ${why}`, {
    field: "content-type",
    fix: "Its producer must send a CloudEvent in JSON, or another content type than application/cloudevents+json",
    ...(cause === undefined ? {} : { cause }),
  });
}
