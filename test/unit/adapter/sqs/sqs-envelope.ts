import { createHash } from "node:crypto";
import {
  bytesOf,
  decodeEnvelope,
  encodeEnvelope,
  orderOf,
  packFields,
  put,
  unpackFields,
  type DeadHeaders,
  type Transport,
} from "../../../../src/adapter/index.ts";
import { PermanentError, type IncomingMessage, type Message } from "../../../../src/index.ts";
import { MAX_BYTES, type SqsAttribute, type SqsContent, type SqsMessage } from "./sqs-client.ts";

const TRANSPORT: Transport = { cloudEventPrefixes: ["ce-"], asciiOnly: false };
/** SQS has ten attributes: all fields travel in one of them, the reasons of a dead letter in another. */
const [FIELDS, DEAD, MAX_ATTRIBUTES] = ["txbox-fields", "txbox-dead", 10];
/** An attribute of messages whose body is not what SQS takes as text: the body is this word, and the bytes in base64. */
const [ENCODING, BASE64] = ["txbox-encoding", "base64"];
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
  const fields: Record<string, unknown> = {};
  for (const [name, { StringValue, BinaryValue }] of Object.entries(received.MessageAttributes ?? {})) {
    if (name !== FIELDS && name !== ENCODING) put(fields, name, StringValue ?? BinaryValue);
  }
  const packed = unpackFields(FIELDS, received.MessageAttributes?.[FIELDS]?.StringValue);
  const { body, key } = unopened(received);
  const message = decodeEnvelope({ ...fields, ...packed }, body, TRANSPORT);
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
  const asItCame: SqsContent = { MessageBody: Body, MessageAttributes, ...ids };
  const all = { ...asItCame, MessageAttributes: { ...MessageAttributes, [DEAD]: text(packFields(dead)) } };
  const fits = Object.keys(all.MessageAttributes).length <= MAX_ATTRIBUTES && sizeOfContent(all) <= MAX_BYTES;
  return fits ? all : asItCame;
}

const text = (value: string): SqsAttribute => ({ DataType: "String", StringValue: value });
const hash = (value: string): string => createHash("sha256").update(value).digest("hex");
