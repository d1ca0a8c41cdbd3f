import type { Headers } from "../../core/message.ts";
import type { HeaderBytes, HeaderLook } from "../../core/header-bytes.ts";
import { bodyOf, headersFrom, isKeyless, laneInRange, withoutBody, type LogMessage } from "./log-message.ts";

/**
 * The columns of a CopiedMessage, as COPY sends them in its binary format: those of a fixed width first, so that they are
 * found without looking at the others.
 */
export function copiedColumns(inline: string): string {
  const body = (column: string) => `case when size <= ${inline} then ${column} end`;
  const fixed = "position, size, lane, created_at";
  const texts = "id, stream, type, key, aggregate_type, aggregate_id, correlation_id";
  return `${fixed}, ${texts}, ${body("headers")}, ${body("payload")}, ${body("body")}`;
}

/** Where the fixed columns are, behind the number of columns and each behind its length. */
const POSITION = 6;
const SIZE = 18;
const LANE = 26;
const CREATED_AT = 32;
const TEXTS = 40;
/** The others in their order. */
const ID = 0;
const STREAM = 1;
const TYPE = 2;
const KEY = 3;
const AGGREGATE_TYPE = 4;
const AGGREGATE_ID = 5;
const CORRELATION_ID = 6;
const HEADERS = 7;
const PAYLOAD = 8;
const BODY = 9;
/** From 1970 to 2000, where PostgreSQL begins to count, in ms. */
const EPOCH_MS = 946_684_800_000;

/** Of the row that begins there. */
export function copiedSize(bytes: Buffer, at: number): number {
  return bytes.readInt32BE(at + SIZE);
}

export function copiedPosition(bytes: Buffer, at: number): string {
  return String(bytes.readBigInt64BE(at + POSITION));
}

/**
 * One row of such a COPY. Each field is read from the bytes whenever it is asked for, and not kept: thousands of messages
 * are on their way at a time, and what they hold is copied by the collector of garbage again and again.
 */
export class CopiedMessage implements LogMessage, HeaderBytes {
  readonly #bytes: Buffer;
  readonly #at: number;
  #headers: Headers | undefined;
  /** What was too large to be read with its page. */
  #large: { headers: string | null; payload: string | null; hex: string | null } | undefined;

  /** `at`: where the row begins. */
  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes;
    this.#at = at;
  }

  get ref(): string {
    return copiedPosition(this.#bytes, this.#at);
  }
  get position(): bigint {
    return this.#bytes.readBigInt64BE(this.#at + POSITION);
  }
  get keyless(): boolean {
    return isKeyless(this);
  }
  get size(): number {
    return copiedSize(this.#bytes, this.#at);
  }
  get lane(): number {
    return laneInRange(this.#bytes.readInt16BE(this.#at + LANE));
  }
  get createdAt(): Date {
    const at = this.#at + CREATED_AT;
    const microseconds = this.#bytes.readInt32BE(at) * 2 ** 32 + this.#bytes.readUInt32BE(at + 4);
    return new Date(EPOCH_MS + Math.floor(microseconds / 1000));
  }
  get id(): string {
    return this.#text(ID)!;
  }
  get stream(): string {
    return this.#text(STREAM)!;
  }
  get type(): string {
    return this.#text(TYPE)!;
  }
  get key(): string | null {
    return this.#text(KEY);
  }
  get aggregateType(): string | null {
    return this.#text(AGGREGATE_TYPE);
  }
  get aggregateId(): string | null {
    return this.#text(AGGREGATE_ID);
  }
  get headers(): Headers {
    if (this.#headers === undefined) {
      const json = this.#large === undefined ? this.#text(HEADERS) : this.#large.headers;
      this.#headers = headersFrom(json, this.#text(CORRELATION_ID) ?? this.id);
    }
    return this.#headers;
  }
  lookAtHeaders(look: HeaderLook): boolean | undefined {
    if (this.#large !== undefined) return undefined;
    const at = this.#find(HEADERS);
    return look(this.#bytes, at + 4, at + 4 + Math.max(0, this.#bytes.readInt32BE(at)));
  }
  get body(): string | Uint8Array {
    if (this.#large !== undefined) return bodyOf(this.#large.payload, this.#large.hex);
    const text = this.#text(PAYLOAD);
    if (text !== null) return text;
    const at = this.#find(BODY);
    const length = this.#bytes.readInt32BE(at);
    if (length < 0) throw withoutBody();
    return Buffer.from(this.#bytes.subarray(at + 4, at + 4 + length));
  }

  fill(headers: string | null, payload: string | null, hex: string | null): void {
    this.#large = { headers, payload, hex };
  }

  #text(column: number): string | null {
    const at = this.#find(column);
    const length = this.#bytes.readInt32BE(at);
    return length < 0 ? null : this.#bytes.toString("utf8", at + 4, at + 4 + length);
  }

  /** Where a column begins, with its length. */
  #find(column: number): number {
    let at = this.#at + TEXTS;
    for (let i = 0; i < column; i++) at += 4 + Math.max(0, this.#bytes.readInt32BE(at));
    return at;
  }
}

/** The head of every COPY in the binary format, before the length of what may be added to it. */
const HEAD = 15;
const SLAB_BYTES = 64 * 1024;

/** Takes the messages of a COPY apart. The driver uses their bytes again, so each row is copied. */
export class RowCollector {
  readonly #onRow: (bytes: Buffer, at: number) => void;
  #slab: Buffer = Buffer.alloc(0);
  #used = 0;
  #begun = false;

  constructor(onRow: (bytes: Buffer, at: number) => void) {
    this.#onRow = onRow;
  }

  add(message: Buffer): void {
    let from = 0;
    if (!this.#begun) {
      this.#begun = true;
      from = HEAD + 4 + message.readInt32BE(HEAD);
    }
    const length = message.length - from;
    // The end is a number of columns of -1, and nothing more.
    if (length < TEXTS) return;
    if (this.#used + length > this.#slab.length) {
      this.#slab = Buffer.allocUnsafeSlow(Math.max(SLAB_BYTES, length));
      this.#used = 0;
    }
    const at = this.#used;
    message.copy(this.#slab, at, from);
    this.#used += length;
    this.#onRow(this.#slab, at);
  }
}
