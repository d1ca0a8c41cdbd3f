/** Text by name, as it travels beside a body. */
export type Fields = Record<string, string>;

/** What a broker's headers can carry, and how it spells CloudEvents. */
export interface Transport {
  /** Prefix of CloudEvents attributes; the first is sent, all are understood. */
  readonly cloudEventPrefixes: readonly [string, ...string[]];
  /** Headers carry printable ASCII only; other text is percent-encoded, as CloudEvents does for HTTP and NATS. */
  readonly asciiOnly: boolean;
  /** Its CloudEvents binding has the content type as the attribute `datacontenttype`; it is sent under both names. */
  readonly contentTypeAttribute?: boolean;
  /** Header names that mean something to the broker, so that no user header may have them. */
  readonly reserved?: RegExp;
}

export function encodeText(text: string, { asciiOnly }: Transport): string {
  if (!asciiOnly) return text;
  return text.toWellFormed().replaceAll(/[^\x21\x23\x24\x26-\x7e]/gu, (char) => encodeURIComponent(char));
}

export function decodeText(text: string, { asciiOnly }: Transport): string {
  if (!asciiOnly || !text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    // A percent sign from a sender that does not encode.
    return text;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Bytes as the text they are; bytes that are no text stay bytes, so that no two different ones become one text. */
export function textOrBytes(bytes: Uint8Array): string | Uint8Array {
  try {
    return utf8.decode(bytes);
  } catch {
    return bytes;
  }
}

/** The name of a field. Any bytes may be sent as one. */
export function fieldName(bytes: Uint8Array): string {
  const text = textOrBytes(bytes);
  return typeof text === "string" ? text : `0x${Buffer.from(text).toString("hex")}`;
}

/** A body as bytes, without copying those that are. */
export function bytesOf(body: string | Uint8Array): Buffer {
  return typeof body === "string" ? Buffer.from(body) : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
}

/** Sets a property of whatever name: an assignment to `__proto__` would be lost. */
export function put(fields: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== "__proto__") fields[name] = value;
  else Object.defineProperty(fields, name, { value, enumerable: true, configurable: true, writable: true });
}
