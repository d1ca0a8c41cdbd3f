import { PermanentError } from "../core/errors.ts";
import type { Headers, IncomingMessage, Message } from "../core/message.ts";
import { fieldText } from "./field-text.ts";
import { encodeText, put, type Fields, type Transport } from "./transport.ts";

/** The content type of a message that names none. */
export const JSON_TYPE = "application/json";
const BYTES_TYPE = "application/octet-stream";
const IS_JSON = /^(?:application\/json|text\/json|[^;]*\+json)\s*(?:;|$)/i;
const STRUCTURED = /^application\/cloudevents\+json\s*(?:;|$)/i;

/** CloudEvents 1.0 attributes and extensions; headers of the message are added by the envelope. */
export function cloudEventFields(message: Message, transport: Transport, source: string | undefined): Fields {
  const [prefix] = transport.cloudEventPrefixes;
  const fields: Fields = { [`${prefix}specversion`]: "1.0" };
  const add = (name: string, value: string | null): void => {
    if (value !== null) fields[prefix + name] = encodeText(value, transport);
  };
  add("id", message.id);
  add("source", source ?? `/${encodeURIComponent(message.stream.toWellFormed())}`);
  add("type", message.type);
  add("subject", message.aggregateId ?? message.key);
  add("time", message.createdAt.toISOString());
  add("partitionkey", message.key);
  add("sequence", String(message.position));
  add("stream", message.stream);
  add("aggregatetype", message.aggregateType);
  add("aggregateid", message.aggregateId);
  add("traceparent", message.headers.traceparent ?? null);
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
  const text = (name: string): string | undefined => fieldText(fields, prefix + name, transport);
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
  const attributes: Record<string, unknown> = {};
  for (const name in event) {
    const value = event[name];
    // As JSON has it, null is an attribute that is not there.
    if (name === "data" || name === "data_base64" || value === null) continue;
    put(attributes, name, typeof value === "number" || typeof value === "boolean" ? String(value) : value);
  }
  if (typeof event["data_base64"] === "string") attributes["datacontenttype"] ??= BYTES_TYPE;
  const known = readCloudEvent(attributes, NO_PREFIX);
  return { ...known, body: dataOf(event, known?.headers?.contentType ?? JSON_TYPE) };
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
  if (base64 !== undefined && base64 !== null) throw notAnEvent("its data_base64 is no text");
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
