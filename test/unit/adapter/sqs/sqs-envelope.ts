import { createHash } from "node:crypto";
import {
  bytesOf,
  decodeEnvelope,
  encodeEnvelope,
  orderOf,
  packFields,
  unpackFields,
  type DeadHeaders,
  type Transport,
} from "../../../../src/adapter/index.ts";
import { PermanentError, type IncomingMessage, type Message } from "../../../../src/index.ts";
import { MAX_BYTES, type SqsAttribute, type SqsContent, type SqsMessage } from "./sqs-client.ts";

const TRANSPORT: Transport = { cloudEventPrefixes: ["ce-"], asciiOnly: false };
/** SQS takes ten attributes: all fields travel in one of them, and the reasons of a dead letter in another. */
const FIELDS = "txbox-fields";
const DEAD = "txbox-dead";
/** Of a body that SQS does not take as text. It is the word "base64" and the bytes in base64, so that none is empty. */
const ENCODING = "txbox-encoding";
const BASE64 = "base64";
const TEXT = /^[\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]+$/u;

/** Throws a PermanentError for a message that is too large. One that is sent again within five minutes is stored once. */
export function encodeMessage(message: Message): SqsContent {
  const { stream, id, body } = message;
  const isText = typeof body === "string" && TEXT.test(body);
  const order = orderOf(message);
  const content: SqsContent = {
    MessageBody: isText ? body : BASE64 + bytesOf(body).toString("base64"),
    MessageAttributes: { [FIELDS]: text(packFields(encodeEnvelope(message, "native", TRANSPORT))) },
    // Keys and ids are any text; SQS takes 128 ASCII characters.
    MessageGroupId: hash(order ?? `\0${id}`),
    MessageDeduplicationId: hash(`${stream}\0${id}`),
  };
  if (!isText) content.MessageAttributes[ENCODING] = text(BASE64);
  const bytes = sizeOfContent(content);
  if (bytes <= MAX_BYTES) return content;
  throw new PermanentError(`The message has ${bytes} bytes; SQS takes ${MAX_BYTES}`, { fix: "Send a reference" });
}

/** As SQS counts: the body, and names, types and values of attributes. */
export function sizeOfContent({ MessageBody, MessageAttributes }: SqsContent): number {
  const parts = Object.entries(MessageAttributes).map(([name, { DataType, StringValue = "", BinaryValue }]) => {
    return Buffer.byteLength(name + DataType + StringValue) + (BinaryValue?.length ?? 0);
  });
  return parts.reduce((sum, bytes) => sum + bytes, Buffer.byteLength(MessageBody));
}

/** Throws a PermanentError for a broken envelope. */
export function openMessage(received: SqsMessage, queue: string): IncomingMessage {
  const { [FIELDS]: packed, [ENCODING]: _, ...others } = received.MessageAttributes ?? {};
  const headers = Object.entries(others).map(([name, one]) => [name, one.StringValue ?? one.BinaryValue]);
  const fields = { ...Object.fromEntries(headers), ...unpackFields(FIELDS, packed?.StringValue) };
  const { body, key } = unopened(received);
  const message = decodeEnvelope(fields, body, TRANSPORT);
  const order = message.stream === undefined ? (message.key ?? key) : message.key;
  return { ...message, key: order, source: queue, routingKey: queue };
}

/** What is known without the envelope. The order of messages of other producers is that of their group. */
export function unopened({ Body = "", Attributes, MessageAttributes }: SqsMessage): IncomingMessage {
  const isText = MessageAttributes?.[ENCODING]?.StringValue !== BASE64;
  const body = isText ? Body : Buffer.from(Body.slice(BASE64.length), "base64");
  return { body, headers: {}, key: Attributes?.MessageGroupId ?? null };
}

/** The message as it came, and why it is dead; without that where there is no room for it. */
export function deadContent(received: SqsMessage, dead: DeadHeaders): SqsContent {
  const { MessageId = "", Body = "", Attributes, MessageAttributes = {} } = received;
  const ids = { MessageGroupId: Attributes?.MessageGroupId ?? MessageId, MessageDeduplicationId: MessageId };
  const asItCame = { MessageBody: Body, MessageAttributes, ...ids };
  const all = { ...asItCame, MessageAttributes: { ...MessageAttributes, [DEAD]: text(packFields(dead)) } };
  const fits = Object.keys(all.MessageAttributes).length <= 10 && sizeOfContent(all) <= MAX_BYTES;
  return fits ? all : asItCame;
}

const text = (value: string): SqsAttribute => ({ DataType: "String", StringValue: value });
const hash = (value: string): string => createHash("sha256").update(value).digest("hex");
