import { TxboxError } from "./errors.ts";
import type { Headers, Message } from "./message.ts";
import { whyUnreadable } from "./readable-message.ts";

/**
 * The text of an archive: a line that says what it is, a line of JSON for each message in the order of positions, and a
 * last line with their number and the SHA-256 of all lines before it. docs/archive-and-replay.md has the fields.
 */
export interface ArchiveHead {
  /** Schema and table prefix. */
  readonly log: string;
  /** The table that it was, such as "message_3". */
  readonly segment: string;
  /** When the segment was made: tells logs of one name apart. */
  readonly createdAt: Date;
}

/** A line that no message could be made of: its row was written or edited by hand. */
export interface UnreadableLine {
  readonly id: string;
  readonly unreadable: string;
}

export function headLine({ log, segment, createdAt }: ArchiveHead): string {
  return JSON.stringify({ archive: "txbox", version: VERSION, log, segment, createdAt });
}

export function endLine(messages: number, sha256: string): string {
  return JSON.stringify({ end: { messages, sha256 } });
}

/** The payload comes last and as it is, so that not a digit of it changes. */
export function messageLine(message: Message): string {
  const { position, id, stream, type, key, aggregateType, aggregateId, createdAt } = message;
  const fields = { position: String(position), id, stream, type, key, aggregateType, aggregateId, createdAt };
  const unreadable = whyUnreadable(message);
  if (unreadable !== undefined) return JSON.stringify({ ...fields, unreadable });
  const { headers, body } = message;
  if (typeof body !== "string")
    return JSON.stringify({ ...fields, headers, bodyBase64: Buffer.from(body).toString("base64") });
  if (/[\n\r]/.test(body)) return JSON.stringify({ ...fields, headers, payloadText: body });
  return `${before({ ...fields, headers })}${body}}`;
}

const VERSION = 1;

function before(fields: object): string {
  return `${JSON.stringify(fields).slice(0, -1)},"payload":`;
}

/** Throws `invalid_archive`. */
export function parseHead(line: string): ArchiveHead {
  const { archive, version, log, segment, createdAt } = objectOf(line);
  if (archive !== "txbox" || typeof log !== "string" || typeof segment !== "string")
    throw broken("is not the beginning of an archive");
  if (version !== VERSION) throw broken(`has version ${String(version)}; this code reads version ${VERSION}`);
  return { log, segment, createdAt: timeOf(createdAt) };
}

/** The last line; undefined for any other. */
export function parseEnd(line: string): { messages: number; sha256: string } | undefined {
  if (!line.startsWith('{"end":')) return undefined;
  const { end } = objectOf(line);
  const { messages, sha256 } = (end ?? {}) as Record<string, unknown>;
  if (typeof messages !== "number" || typeof sha256 !== "string") throw broken("is no end of an archive");
  return { messages, sha256 };
}

export function parseMessage(line: string): Message | UnreadableLine {
  const fields = objectOf(line);
  const { id, stream, type, position, unreadable } = fields;
  for (const [name, value] of Object.entries({ id, stream, type, position }))
    if (typeof value !== "string") throw broken(`has no ${name}`);
  if (typeof unreadable === "string") return { id: id as string, unreadable };
  if (!/^\d{1,19}$/.test(position as string)) throw broken("has no position");
  const { headers } = fields;
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) throw broken("has no headers");
  return {
    id: id as string,
    position: BigInt(position as string),
    stream: stream as string,
    type: type as string,
    key: textOrNull(fields, "key"),
    aggregateType: textOrNull(fields, "aggregateType"),
    aggregateId: textOrNull(fields, "aggregateId"),
    createdAt: timeOf(fields["createdAt"]),
    headers: headers as Headers,
    body: bodyOf(line, fields),
  };
}

function bodyOf(line: string, { payload, payloadText, bodyBase64, ...rest }: Record<string, unknown>) {
  if (typeof bodyBase64 === "string") return new Uint8Array(Buffer.from(bodyBase64, "base64"));
  if (typeof payloadText === "string") return payloadText;
  if (payload === undefined) throw broken("has no payload");
  const start = before(rest);
  // Written by another program: the same value, perhaps in other digits.
  return line.startsWith(start) ? line.slice(start.length, -1) : JSON.stringify(payload);
}

function objectOf(line: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw broken("is not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw broken("is not an object");
  return value as Record<string, unknown>;
}

function textOrNull(fields: Record<string, unknown>, name: string): string | null {
  const value = fields[name];
  if (value === null || typeof value === "string") return value;
  throw broken(`has no ${name}`);
}

function timeOf(value: unknown): Date {
  const time = new Date(typeof value === "string" ? value : Number.NaN);
  if (Number.isNaN(time.getTime())) throw broken("has no createdAt");
  return time;
}

function broken(what: string): TxboxError {
  return new TxboxError("invalid_archive", what);
}
