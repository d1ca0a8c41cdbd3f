import { put, type Fields, type Transport } from "../../adapter/index.ts";
import { TxboxError } from "../../core/errors.ts";
import type { NatsMessage, NatsMessageHeaders } from "./nats-client.ts";

/** Names as the NATS binding of CloudEvents has them; its text is percent-encoded as well. */
export const NATS_TRANSPORT: Transport = {
  cloudEventPrefixes: ["ce-"],
  asciiOnly: true,
  contentTypeAttribute: true,
  reserved: /^nats-/i,
};

export const MSG_ID = "Nats-Msg-Id";
export const EXPECTED_STREAM = "Nats-Expected-Stream";
export const EXPECTED_LAST_MSG_ID = "Nats-Expected-Last-Msg-Id";

/**
 * Headers made once, as bytes: the client asks for nothing else when it publishes, and its own class checks and
 * searches every name again with each one that is set, which costs more than all the rest of publishing.
 */
export class EncodedHeaders implements NatsMessageHeaders {
  readonly code = 0;
  readonly description = "";
  readonly #bytes: Uint8Array;
  #asked = false;

  constructor(fields: Fields, more: Readonly<Record<string, readonly string[]>> = {}) {
    let text = "NATS/1.0\r\n";
    for (const name in fields) text += `${name}: ${fields[name]}\r\n`;
    for (const name in more) for (const value of more[name] ?? []) text += `${name}: ${value}\r\n`;
    this.#bytes = Buffer.from(`${text}\r\n`);
  }

  get size(): number {
    return this.#bytes.length;
  }

  encode(): Uint8Array {
    this.#asked = true;
    return this.#bytes;
  }

  /** A client that does not ask for the bytes would send the message without its headers. */
  requireSent(): void {
    if (this.#asked) return;
    throw new TxboxError("invalid_option", "This client takes no headers from txbox, so messages would lose theirs", {
      field: "connection",
      fix: "Use @nats-io/transport-node from 3.0 on",
    });
  }

  *[Symbol.iterator](): Iterator<[string, string[]]> {
    for (const line of Buffer.from(this.#bytes).toString().split("\r\n").slice(1)) {
      const colon = line.indexOf(":");
      if (colon > 0) yield [line.slice(0, colon), [line.slice(colon + 1).trim()]];
    }
  }
}

/** Every header with all its values; throws when a name is not fit to be one. */
export function headersOf(message: NatsMessage): Map<string, string[]> {
  return new Map(message.headers ?? []);
}

/** Header values as one text each. */
export function fieldsOf(headers: ReadonlyMap<string, readonly string[]>): Fields {
  const fields: Fields = {};
  for (const [name, values] of headers) put(fields, name, values.length === 1 ? String(values[0]) : values.join(", "));
  return fields;
}

/** The server's word in an answer without a body, such as 503 for "no responders". */
export function statusOf(message: NatsMessage): { code: number; description: string } | undefined {
  if (message.data.length > 0) return undefined;
  try {
    const { headers } = message;
    return headers === undefined || headers.code === 0
      ? undefined
      : { code: headers.code, description: headers.description };
  } catch {
    return undefined;
  }
}
