import { LANES, laneOf } from "../../core/lane.ts";
import { PermanentError } from "../../core/errors.ts";
import type { Headers, Message } from "../../core/message.ts";
import type { Stored } from "../../lanes/lane-port.ts";
import { readableFields } from "../../core/readable-message.ts";
import type { Row } from "./postgres-client.ts";

/** What a message takes along when it is copied between tables: everything but its place in the log. */
export const COPIED_COLUMNS: string =
  "created_at, size, lane, id, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body";

/**
 * The columns behind a RowMessage, in the order of its row. With `inline`, an SQL expression, the headers and body of
 * larger messages are left out. What is null costs almost nothing on the way: the lane of a key can be had from the key.
 */
export function messageColumns(inline?: string): string {
  const body = (column: string) => (inline === undefined ? column : `case when size <= ${inline} then ${column} end`);
  return [
    "position",
    "id",
    "stream",
    "type",
    "key",
    "aggregate_type",
    "aggregate_id",
    "correlation_id",
    body("headers"),
    body("payload"),
    body("pg_catalog.encode(body, 'hex')"),
    epochMs("created_at"),
    inline === undefined ? "null" : "case when key is null then lane end",
    inline === undefined ? "null" : "size",
  ].join(", ");
}

/** The same for lists: whatever may be long is left out, and is empty in `fieldsOf`. */
export function listedColumns(contents = true): string {
  if (contents) return messageColumns();
  const own = "position, id, stream, type, key, aggregate_type, aggregate_id, correlation_id";
  return `${own}, null, '', null, ${epochMs("created_at")}, null, null`;
}

/** A message of the log. */
export interface LogMessage extends Stored {
  /** Its position. */
  readonly ref: string;
  readonly keyless: boolean;
  /** Bytes of body and headers. */
  readonly size: number;
  /** Adds what was too large to be read with its page. */
  fill(headers: string | null, payload: string | null, hex: string | null): void;
}

/** A row of a query. Fields are read from the row when asked for. */
export class RowMessage implements LogMessage {
  readonly #row: Row;
  #headers: Headers | undefined;

  constructor(row: Row) {
    this.#row = row;
  }

  get ref(): string {
    return this.#row[0]!;
  }
  get position(): bigint {
    return BigInt(this.#row[0]!);
  }
  get id(): string {
    return this.#row[1]!;
  }
  get stream(): string {
    return this.#row[2]!;
  }
  get type(): string {
    return this.#row[3]!;
  }
  get key(): string | null {
    return this.#row[4]!;
  }
  get aggregateType(): string | null {
    return this.#row[5]!;
  }
  get aggregateId(): string | null {
    return this.#row[6]!;
  }
  get headers(): Headers {
    this.#headers ??= headersFrom(this.#row[8] ?? null, this.#row[7] ?? this.id);
    return this.#headers;
  }
  get body(): string | Uint8Array {
    return bodyOf(this.#row[9]!, this.#row[10]!);
  }
  get createdAt(): Date {
    return new Date(Number(this.#row[11]));
  }
  get lane(): number {
    const lane = this.#row[12];
    return lane == null ? laneOf(this.key) : laneInRange(Number(lane));
  }
  get keyless(): boolean {
    return isKeyless(this);
  }
  get size(): number {
    return sizeOfRow(this.#row);
  }
  fill(headers: string | null, payload: string | null, hex: string | null): void {
    this.#row[8] = headers;
    this.#row[9] = payload;
    this.#row[10] = hex;
  }
}

/** The fields of a row of `messageColumns`, but for its position; headers and body that cannot be read are empty. */
export function fieldsOf(row: Row): Omit<Message, "position"> {
  return readableFields(new RowMessage(row));
}

/** A row that no outbox wrote may have any number for a lane: every one belongs to some lane. In SQL: `lane & 63`. */
export function laneInRange(lane: number): number {
  return lane & (LANES - 1);
}

const MAX_NAME_BYTES = 1024;

/** No index could hold it. The outbox refuses such names, so only an INSERT by hand can have written it. */
function isTooLong(name: string): boolean {
  return name.length * 3 > MAX_NAME_BYTES && Buffer.byteLength(name) > MAX_NAME_BYTES;
}

/** Its names cannot be kept with what waits: then it needs no order. */
export function isKeyless({ stream, key }: Pick<Message, "stream" | "key">): boolean {
  return isTooLong(stream) || (key !== null && isTooLong(key));
}

/** The stream by which something waits. */
export function shortStream(stream: string): string {
  return isTooLong(stream) ? stream.slice(0, 256).toWellFormed() : stream;
}

/** Milliseconds of a time or interval. A whole number has the same form under every setting of the session. */
export function epochMs(expression: string): string {
  return `pg_catalog.floor(pg_catalog.date_part('epoch', ${expression}) * 1000::float8)::bigint`;
}

/**
 * When a message (`row`) could leave at the earliest. One that was scheduled keeps the time at which it was enqueued; the
 * id that it was given carries the time of its delivery. A time ahead of now is that of an id of other making.
 */
export function dueSql(row: string): string {
  const inId = `to_timestamp(('x' || substr(${row}.id, 1, 8) || substr(${row}.id, 10, 4))::bit(48)::bigint / 1000.0)`;
  // Thousands of rows are looked at: a regular expression would take most of the time.
  const isUuidv7 = `${row}.id like '________-____-7___-____-____________' and translate(substr(${row}.id, 1, 13), '0123456789abcdef-', '') = ''`;
  return `case when not (${isUuidv7}) then ${row}.created_at
    when ${inId} <= clock_timestamp() then greatest(${inId}, ${row}.created_at) else ${row}.created_at end`;
}

export function dateOf(ms: string | null): Date | null {
  return ms === null ? null : new Date(Number(ms));
}

export function sizeOfRow(row: Row): number {
  return Number(row[13]);
}

/** A time that a writer gave, which may be infinite: as one that both JavaScript and a number of ms can hold. */
export function finite(time: string): string {
  return `case when ${time} is not null then least(greatest(${time}, 'epoch'), '9999-12-31') end`;
}

/** A message without a correlation of its own is the first of its chain. Throws when no outbox can have written them. */
export function headersFrom(json: string | null, correlationId: string): Headers {
  if (json === null) return { correlationId };
  const headers = JSON.parse(json) as Headers | null;
  if (typeof headers !== "object" || headers === null || Array.isArray(headers))
    throw new PermanentError("The row of this message is none that txbox wrote: headers is not an object");
  return { ...headers, correlationId };
}

/** The one that is not null of JSON text and bytes as hexadecimal digits. Throws when there is neither. */
export function bodyOf(payload: string | null, hex: string | null): string | Uint8Array {
  if (payload === null && hex === null) throw withoutBody();
  return payload ?? Buffer.from(hex!, "hex");
}

export function withoutBody(): PermanentError {
  return new PermanentError("The row of this message is none that txbox wrote: payload and body are null");
}
