import {
  bytesOf,
  decodeEnvelope,
  encodeEnvelope,
  fieldName,
  put,
  textOrBytes,
  type EnvelopeFormat,
  type Fields,
  type Transport,
} from "../../adapter/index.ts";
import type { IncomingMessage, Message } from "../../core/message.ts";

/** Kafka's headers are bytes; CloudEvents prefixes its attributes with `ce_`. */
export const KAFKA_TRANSPORT: Transport = { cloudEventPrefixes: ["ce_"], asciiOnly: false };

/** A record as a broker delivered it. */
export interface KafkaRecord {
  readonly topic: string;
  /** Another one when the topic was made anew. */
  readonly topicId: string;
  readonly partition: number;
  readonly offset: bigint;
  /** Leader epoch: with the offset it names a record for good, also when the log was cut and written anew. */
  readonly epoch: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [Buffer | null, Buffer | null])[];
}

export interface EncodedMessage {
  readonly key: Buffer | undefined;
  readonly value: Buffer;
  readonly headers: Map<Buffer, Buffer>;
  /** About what it takes in a batch. */
  readonly size: number;
}

/** Attributes, length, offset, timestamp and the lengths of key, value and headers. */
const RECORD_OVERHEAD = 24;
const HEADER_OVERHEAD = 6;

export function encodeMessage(
  message: Message,
  topic: string,
  format: EnvelopeFormat,
  source: string | undefined,
): EncodedMessage {
  const { body, key } = message;
  const value = bytesOf(body);
  const keyBytes = key === null ? undefined : Buffer.from(key);
  const fields = encodeEnvelope(message, format, KAFKA_TRANSPORT, source);
  const headers = new Map<Buffer, Buffer>();
  let size = RECORD_OVERHEAD + value.length + (keyBytes?.length ?? 0);
  for (const name in fields) {
    // The record has both by itself, and each header costs.
    if (name === "txbox-key" || (name === "txbox-stream" && message.stream === topic)) continue;
    const nameBytes = bytesOfName(name);
    const fieldBytes = name === "txbox-type" ? bytesOfName(fields[name]!) : Buffer.from(fields[name]!);
    headers.set(nameBytes, fieldBytes);
    size += HEADER_OVERHEAD + nameBytes.length + fieldBytes.length;
  }
  return { key: keyBytes, value, headers, size };
}

/** Names of headers and types repeat from message to message. */
const names = new Map<string, Buffer>();
const MAX_NAMES = 1000;

function bytesOfName(name: string): Buffer {
  let bytes = names.get(name);
  if (bytes === undefined) {
    bytes = Buffer.from(name);
    if (names.size < MAX_NAMES) names.set(name, bytes);
  }
  return bytes;
}

export function headersOf(fields: Fields): Map<Buffer, Buffer> {
  return new Map(Object.entries(fields).map(([name, text]) => [bytesOfName(name), Buffer.from(text)]));
}

/** Another record never gets it, not even one of a topic with the same name or in place of one that was lost. */
export function placeId({ topic, partition, offset, topicId, epoch }: KafkaRecord): string {
  return `${topic}/${partition}/${offset}@${topicId}.${epoch}`;
}

const NOTHING = new Uint8Array(0);

/** Throws a PermanentError for an envelope that is broken. */
export function openRecord(record: KafkaRecord): IncomingMessage {
  const fields: Record<string, unknown> = {};
  for (const [name, value] of record.headers) {
    if (name !== null && value !== null) put(fields, fieldName(name), textOrBytes(value));
  }
  const message = decodeEnvelope(fields, record.value ?? NOTHING, KAFKA_TRANSPORT);
  return {
    ...message,
    stream: message.stream ?? record.topic,
    key: message.key ?? textOf(record.key),
    source: record.topic,
    routingKey: record.topic,
  };
}

/** What is left to say of a record whose envelope cannot be read. */
export function unreadable({ topic, key, value }: KafkaRecord): IncomingMessage {
  return { stream: topic, key: textOf(key), headers: {}, body: value ?? NOTHING, routingKey: topic };
}

/** Keys of other producers may be any bytes; those that are no text still keep their order. */
function textOf(key: Buffer | null): string | null {
  if (key === null) return null;
  const text = textOrBytes(key);
  return typeof text === "string" ? text : key.toString("hex");
}
