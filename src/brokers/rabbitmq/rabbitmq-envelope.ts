import {
  bytesOf,
  decodeEnvelope,
  encodeEnvelope,
  put,
  type EnvelopeFormat,
  type Transport,
} from "../../adapter/index.ts";
import type { IncomingMessage, Message } from "../../core/message.ts";
import type { RabbitmqMessage, RabbitmqPublish } from "./rabbitmq-client.ts";

const AMQP: Transport = {
  cloudEventPrefixes: ["cloudEvents_", "cloudEvents:", "ce-", "ce_"],
  asciiOnly: false,
  // Copies go to the queues that CC and BCC name; headers that begin with x- belong to the server.
  reserved: /^(?:b?cc$|x-)/i,
};

/** Headers by which the server counts; they are no part of the message. */
const COUNTERS: ReadonlySet<string> = new Set(["x-delivery-count", "x-acquired-count"]);
const MAX_SHORT_TEXT = 255;

/** A message as the client takes it. */
export interface EncodedForRabbitmq {
  readonly content: Buffer;
  readonly options: RabbitmqPublish;
}

/**
 * Properties and headers of a message. Fields for which AMQP has a property are in the properties too, for readers of
 * those.
 */
export function encodeForRabbitmq(message: Message, format: EnvelopeFormat, source?: string): EncodedForRabbitmq {
  const { body } = message;
  const headers = encodeEnvelope(message, format, AMQP, source);
  const options: RabbitmqPublish = {
    persistent: true,
    mandatory: true,
    messageId: message.id,
    type: message.type,
    timestamp: Math.floor(message.createdAt.getTime() / 1000),
    contentType: headers["content-type"] ?? (typeof body === "string" ? JSON_TYPE : BYTES_TYPE),
    headers,
  };
  const correlationId = headers["correlation-id"];
  if (correlationId !== undefined && isShort(correlationId)) options.correlationId = correlationId;
  return { content: bytesOf(body), options };
}

const JSON_TYPE = "application/json";
const BYTES_TYPE = "application/octet-stream";

/** Throws a PermanentError for an envelope that is broken. */
export function openFromRabbitmq({ content, fields, properties }: RabbitmqMessage): IncomingMessage {
  const headers: Record<string, unknown> = {};
  for (const name in properties.headers) if (!COUNTERS.has(name)) put(headers, name, properties.headers[name]);
  const ours = headers["txbox-id"] !== undefined || typeof headers["cloudEvents_stream"] === "string";
  if (!ours) {
    // The properties say what the headers of others do not; ours say everything in headers.
    if (typeof properties.contentType === "string") headers["content-type"] ??= properties.contentType;
    if (typeof properties.correlationId === "string") headers["correlation-id"] ??= properties.correlationId;
  }
  const opened = decodeEnvelope(headers, content, AMQP);
  return {
    ...opened,
    id: opened.id ?? text(properties.messageId),
    type: opened.type ?? text(properties.type),
    createdAt: opened.createdAt ?? timeOf(properties.timestamp),
    source: fields.exchange,
    routingKey: fields.routingKey,
  };
}

/** How often the message came before without being acknowledged; quorum queues count it. */
export function deliveriesBefore({ properties }: RabbitmqMessage): number {
  const count = properties.headers?.["x-delivery-count"];
  return typeof count === "number" ? count : 0;
}

/** The properties of a delivery, to be sent on as they came. */
export function propertiesOf({ properties }: RabbitmqMessage): RabbitmqPublish {
  const options: RabbitmqPublish = {};
  for (const name of ["messageId", "type", "correlationId", "contentType", "contentEncoding"] as const) {
    const value = properties[name];
    if (typeof value === "string") options[name] = value;
  }
  if (typeof properties.timestamp === "number") options.timestamp = properties.timestamp;
  return options;
}

function isShort(value: string): boolean {
  return Buffer.byteLength(value) <= MAX_SHORT_TEXT;
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function timeOf(seconds: unknown): Date | undefined {
  const time = typeof seconds === "number" ? new Date(seconds * 1000) : undefined;
  return time === undefined || Number.isNaN(time.getTime()) ? undefined : time;
}
