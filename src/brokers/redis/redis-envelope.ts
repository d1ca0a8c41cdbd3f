import {
  bytesOf,
  decodeEnvelope,
  encodeEnvelope,
  fieldName,
  put,
  textOrBytes,
  type EnvelopeFormat,
  type Transport,
} from "../../adapter/index.ts";
import { PermanentError } from "../../core/errors.ts";
import type { IncomingMessage, Message } from "../../core/message.ts";
import type { RedisArgument } from "./plain-connection.ts";

/** The field that has the body; all others are the envelope. */
const BODY = "body";
/** What the server's Lua can pass on in one call, with room to spare. */
const MAX_FIELDS = 3000;

const TRANSPORT: Transport = {
  cloudEventPrefixes: ["ce_", "ce-", "cloudEvents:"],
  asciiOnly: false,
  reserved: /^(?:body$|dead-)/,
};

/** Fields and values of a stream's entry, as delivered. */
export type RawFields = readonly Buffer[];

/** What a message has to say: the names of its fields as one text, and their values. */
export interface EncodedEntry {
  readonly shape: string;
  readonly values: readonly RedisArgument[];
}

/** Between the names of a shape; no name has it. */
export const NAME_END = "\0";

export function encodeEntry(message: Message, format: EnvelopeFormat, source: string | undefined): EncodedEntry {
  const fields = encodeEnvelope(message, format, TRANSPORT, source);
  const values: RedisArgument[] = [];
  let shape = "";
  for (const name in fields) {
    shape += name + NAME_END;
    values.push(fields[name]!);
  }
  if (values.length > MAX_FIELDS) throw tooManyHeaders(values.length);
  const { body } = message;
  values.push(typeof body === "string" ? body : bytesOf(body));
  return { shape: shape + BODY, values };
}

/** Throws a PermanentError when the server would not take a value. */
export function requireFitting(entry: EncodedEntry, maxBytes: number): EncodedEntry {
  const { shape, values } = entry;
  for (const [i, value] of values.entries()) {
    if (value.length * 3 <= maxBytes) continue;
    const bytes = Buffer.byteLength(value);
    if (bytes > maxBytes) throw tooLarge(shape.split(NAME_END)[i]!, bytes, maxBytes);
  }
  return entry;
}

/** Throws a PermanentError for a broken envelope. */
export function openEntry(raw: RawFields, streamKey: string): IncomingMessage {
  const fields: Record<string, unknown> = {};
  let body: Buffer | undefined;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = fieldName(raw[i]!);
    if (name === BODY) body = raw[i + 1];
    else put(fields, name, textOrBytes(raw[i + 1]!));
  }
  // Many producers have no body and write an object's properties as fields.
  const message = decodeEnvelope(fields, body ?? JSON.stringify(fields), TRANSPORT);
  return { ...message, source: streamKey, routingKey: streamKey };
}

/** What to hand on of an entry whose envelope is broken: its body. */
export function brokenEntry(raw: RawFields): IncomingMessage {
  const at = raw.findIndex((field, i) => i % 2 === 0 && field.toString() === BODY);
  return { body: raw[at + 1] ?? "", headers: {} };
}

/** The entry as it came, and why it is dead. */
export function deadEntry(raw: RawFields, dead: Readonly<Record<string, string>>): RedisArgument[] {
  const args: RedisArgument[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if (!Object.hasOwn(dead, raw[i]!.toString())) args.push(raw[i]!, raw[i + 1]!);
  }
  for (const name in dead) args.push(name, dead[name]!);
  return args;
}

function tooLarge(field: string, bytes: number, maxBytes: number): PermanentError {
  return new PermanentError(`The ${field} of this message has ${bytes} bytes; Redis takes ${maxBytes}`, {
    field,
    fix: "Send a reference instead, or raise proto-max-bulk-len of the server",
  });
}

function tooManyHeaders(count: number): PermanentError {
  return new PermanentError(`This message has ${count} headers; ${MAX_FIELDS} is the most`, {
    field: "headers",
    fix: "Put them into the payload, or into one nested header",
  });
}
