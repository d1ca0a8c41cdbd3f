import type { Headers, IncomingMessage, Message } from "../../core/message.ts";
import { fieldText } from "./field-text.ts";
import { encodeText, type Fields, type Transport } from "./transport.ts";

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

/** What a CloudEvent says of the message; nothing when it is none. */
export function readCloudEvent(
  fields: Readonly<Record<string, unknown>>,
  transport: Transport,
): Partial<IncomingMessage> {
  const prefix = transport.cloudEventPrefixes.find((one) => typeof fields[`${one}specversion`] === "string");
  if (prefix === undefined) return {};
  const text = (name: string): string | undefined => fieldText(fields, prefix + name, transport);
  const sequence = text("sequence");
  const time = new Date(text("time") ?? Number.NaN);
  const headers: Headers = {};
  const [correlationId, traceparent] = [text("correlationid"), text("traceparent")];
  if (correlationId !== undefined) headers.correlationId = correlationId;
  if (traceparent !== undefined) headers.traceparent = traceparent;
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
