import type { Row } from "./postgres-client.ts";

/**
 * The columns of a LogMessage as COPY sends them in its binary format: those of a fixed width first, so that they are
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
/** From 1970 to 2000, where PostgreSQL begins to count, in ms. */
const EPOCH_MS = 946_684_800_000n;

/** The position of the row that begins there. */
export function copiedPosition(bytes: Buffer, at: number): string {
  return String(bytes.readBigInt64BE(at + POSITION));
}

export function copiedSize(bytes: Buffer, at: number): number {
  return bytes.readInt32BE(at + SIZE);
}

/** All of the row that begins there, in the order of `messageColumns`, as text. */
export function copiedRow(bytes: Buffer, at: number): Row {
  const microseconds = bytes.readBigInt64BE(at + CREATED_AT);
  const milliseconds = (microseconds - (((microseconds % 1000n) + 1000n) % 1000n)) / 1000n;
  const row: Row = [copiedPosition(bytes, at)];
  let next = at + TEXTS;
  const text = (encoding: "utf8" | "hex"): string | null => {
    const length = bytes.readInt32BE(next);
    next += 4;
    if (length < 0) return null;
    const value = bytes.toString(encoding, next, next + length);
    next += length;
    return value;
  };
  for (let column = 1; column <= 9; column++) row.push(text("utf8"));
  row.push(text("hex"), String(milliseconds + EPOCH_MS));
  row.push(row[4] === null ? String(bytes.readInt16BE(at + LANE)) : null, String(copiedSize(bytes, at)));
  return row;
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
