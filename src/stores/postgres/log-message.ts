import { laneOf } from "../../core/lane.ts";
import type { Headers, Message } from "../../core/message.ts";
import { copiedPosition, copiedRow, copiedSize } from "./copied-rows.ts";
import type { Row } from "./postgres-client.ts";

/** What a message takes along when it is copied between tables: everything but its place in the log. */
export const COPIED_COLUMNS: string =
  "created_at, size, lane, id, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body";

/**
 * The columns behind a LogMessage, in the order of its row. With `inline`, an SQL expression, the headers and body of
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
    body("encode(body, 'hex')"),
    "floor(date_part('epoch', created_at) * 1000)::bigint",
    inline === undefined ? "null" : "case when key is null then lane end",
    inline === undefined ? "null" : "size",
  ].join(", ");
}

/** A row of the log. Fields are read from the row when asked for: a relay that only moves bodies decodes nothing else. */
export class LogMessage implements Message {
  /** Or the bytes of a COPY: they are held, with their neighbours, until a field is asked for. */
  #source: Row | Buffer;
  readonly #at: number;
  #headers: Headers | undefined;

  /** `at`: where the row begins among the bytes. */
  constructor(source: Row | Buffer, at = 0) {
    this.#source = source;
    this.#at = at;
  }

  get #row(): Row {
    const source = this.#source;
    return Array.isArray(source) ? source : (this.#source = copiedRow(source, this.#at));
  }

  get positionText(): string {
    const source = this.#source;
    return Array.isArray(source) ? source[0]! : copiedPosition(source, this.#at);
  }
  get position(): bigint {
    return BigInt(this.positionText);
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
    this.#headers ??= {
      ...(this.#row[8] == null ? undefined : (JSON.parse(this.#row[8]) as Headers)),
      correlationId: this.#row[7] ?? this.#row[1]!,
    };
    return this.#headers;
  }
  get body(): string | Uint8Array {
    return this.#row[9] ?? Buffer.from(this.#row[10]!, "hex");
  }
  get createdAt(): Date {
    return new Date(Number(this.#row[11]));
  }
  get lane(): number {
    const lane = this.#row[12];
    return lane == null ? laneOf(this.key) : Number(lane);
  }
  /** Bytes of body and headers. */
  get size(): number {
    return sizeOf(this.#source, this.#at);
  }
  /** What was too large to be read with its page. */
  fill(headers: string | null, payload: string | null, body: string | null): void {
    this.#row[8] = headers;
    this.#row[9] = payload;
    this.#row[10] = body;
  }
}

/** Bytes of body and headers of a message that is made of the same. */
export function sizeOf(source: Row | Buffer, at: number): number {
  return Array.isArray(source) ? Number(source[13]) : copiedSize(source, at);
}
