/** Places in the server's log, as the stream writes them. */
export type Lsn = bigint;

/** What a stream of the plugin `pgoutput` (protocol version 1) tells of. */
export type StreamEvent =
  /** A transaction that has committed; `lsn` is the place of its commit. */
  | { readonly kind: "begin"; readonly lsn: Lsn }
  | { readonly kind: "commit"; readonly lsn: Lsn }
  | { readonly kind: "relation"; readonly oid: number; readonly columns: readonly string[] }
  /** A row that was inserted: its bytes, copied, beginning with the number of columns. */
  | { readonly kind: "insert"; readonly oid: number; readonly tuple: Buffer }
  /** Written by `pg_logical_emit_message`, outside of transactions. */
  | { readonly kind: "mark"; readonly prefix: string; readonly content: string; readonly lsn: Lsn }
  /** The server is alive, has come this far, and may want an answer. */
  | { readonly kind: "keepalive"; readonly end: Lsn; readonly wantsAnswer: boolean }
  /** What is of no interest here. */
  | { readonly kind: "other" };

const OTHER: StreamEvent = { kind: "other" };
/** In front of a message of the plugin: its kind, where it begins, how far the server has come, a time. */
const HEAD = 1 + 8 + 8 + 8;

/** One message of the replication protocol. Its bytes are used again by the driver. */
export function parseStreamMessage(bytes: Buffer): StreamEvent {
  switch (String.fromCharCode(bytes[0]!)) {
    case "k":
      return { kind: "keepalive", end: bytes.readBigUInt64BE(1), wantsAnswer: bytes[17] === 1 };
    case "w":
      return parseData(bytes);
    default:
      return OTHER;
  }
}

/** How far the server has come, where the message says so. */
export function serverEndOf(bytes: Buffer): Lsn | undefined {
  if (bytes[0] === 0x77) return bytes.readBigUInt64BE(9);
  return bytes[0] === 0x6b ? bytes.readBigUInt64BE(1) : undefined;
}

function parseData(bytes: Buffer): StreamEvent {
  switch (String.fromCharCode(bytes[HEAD]!)) {
    case "B":
      return { kind: "begin", lsn: bytes.readBigUInt64BE(HEAD + 1) };
    case "C":
      return { kind: "commit", lsn: bytes.readBigUInt64BE(HEAD + 2) };
    case "I": {
      const oid = bytes.readUInt32BE(HEAD + 1);
      // Behind the oid: "N" for the new row.
      return { kind: "insert", oid, tuple: Buffer.from(bytes.subarray(HEAD + 6)) };
    }
    case "R":
      return parseRelation(bytes);
    case "M":
      return parseMark(bytes);
    default:
      return OTHER;
  }
}

function parseRelation(bytes: Buffer): StreamEvent {
  const oid = bytes.readUInt32BE(HEAD + 1);
  // Schema, name, and how rows are identified.
  let at = textEnd(bytes, textEnd(bytes, HEAD + 5)) + 1;
  const count = bytes.readUInt16BE(at);
  at += 2;
  const columns: string[] = [];
  for (let i = 0; i < count; i++) {
    const end = textEnd(bytes, at + 1);
    columns.push(bytes.toString("utf8", at + 1, end - 1));
    // Its type and modifier.
    at = end + 8;
  }
  return { kind: "relation", oid, columns };
}

function parseMark(bytes: Buffer): StreamEvent {
  const isOfTransaction = bytes[HEAD + 1] === 1;
  if (isOfTransaction) return OTHER;
  const lsn = bytes.readBigUInt64BE(HEAD + 2);
  const prefixAt = HEAD + 10;
  const end = textEnd(bytes, prefixAt);
  const length = bytes.readUInt32BE(end);
  const prefix = bytes.toString("utf8", prefixAt, end - 1);
  return { kind: "mark", prefix, content: bytes.toString("utf8", end + 4, end + 4 + length), lsn };
}

/** Behind the zero byte of a text. */
function textEnd(bytes: Buffer, at: number): number {
  return bytes.indexOf(0, at) + 1;
}

const SINCE_2000_MS = 946_684_800_000;

/**
 * The answer of a reader: what it has received, and up to where the server may forget. Both are places in the log; what
 * has merely arrived is never confirmed.
 */
export function statusUpdate(
  received: Lsn,
  confirmed: Lsn,
  { now, wantsAnswer }: { now: number; wantsAnswer: boolean },
): Buffer {
  const bytes = Buffer.alloc(34);
  bytes[0] = 0x72;
  bytes.writeBigUInt64BE(received, 1);
  bytes.writeBigUInt64BE(confirmed, 9);
  bytes.writeBigUInt64BE(confirmed, 17);
  bytes.writeBigInt64BE(BigInt(Math.floor(now - SINCE_2000_MS)) * 1000n, 25);
  bytes[33] = wantsAnswer ? 1 : 0;
  return bytes;
}

/** `16/B374D848` as a number, and back. */
export function parseLsn(text: string): Lsn {
  const [high = "0", low = "0"] = text.split("/");
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
}

export function formatLsn(lsn: Lsn): string {
  return `${(lsn >> 32n).toString(16)}/${(lsn & 0xffff_ffffn).toString(16)}`.toUpperCase();
}
