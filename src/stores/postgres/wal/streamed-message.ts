import type { Headers } from "../../../core/message.ts";
import { bodyOf, headersFrom, isKeyless, laneInRange, type LogMessage } from "../log-message.ts";

/** The columns that a streamed message is read from. */
const COLUMNS = [
  "position",
  "xid",
  "created_at",
  "size",
  "lane",
  "id",
  "stream",
  "type",
  "key",
  "aggregate_type",
  "aggregate_id",
  "correlation_id",
  "headers",
  "payload",
  "body",
] as const;

type Column = (typeof COLUMNS)[number];

/** Where each column stands in the rows of a table. By name: migrations may add some. */
export type ColumnPlaces = Readonly<Record<Column, number>>;

/** Undefined: not the log. */
export function columnPlaces(columns: readonly string[]): ColumnPlaces | undefined {
  const places = COLUMNS.map((name) => [name, columns.indexOf(name)] as const);
  if (places.some(([, place]) => place < 0)) return undefined;
  return Object.fromEntries(places) as Record<Column, number>;
}

const NULL = 0x6e;
const TEXT = 0x74;

/** A row of the log as the stream brought it: fields are read from the bytes when they are asked for. */
export class StreamedMessage implements LogMessage {
  readonly #tuple: Buffer;
  readonly #places: ColumnPlaces;
  /** Where each field of the row begins. */
  readonly #starts: readonly number[];
  readonly ref: string;
  readonly id: string;
  readonly lane: number;
  readonly size: number;
  readonly stream: string;
  readonly key: string | null;
  #headers: Headers | undefined;
  /** Other contents, laid over what was enqueued. */
  #edited: { headers: string | null; payload: string | null; hex: string | null } | undefined;

  constructor(tuple: Buffer, places: ColumnPlaces) {
    this.#tuple = tuple;
    this.#places = places;
    this.#starts = startsOf(tuple);
    this.ref = this.#text("position")!;
    this.id = this.#text("id")!;
    this.lane = laneInRange(Number(this.#text("lane")));
    this.size = Number(this.#text("size"));
    this.stream = this.#text("stream")!;
    this.key = this.#text("key");
  }

  /** The transaction that wrote it. */
  get xid(): bigint {
    return BigInt(this.#text("xid")!);
  }
  /** What it holds in memory. */
  get bytes(): number {
    return this.#tuple.length;
  }
  get position(): bigint {
    return BigInt(this.ref);
  }
  get keyless(): boolean {
    return isKeyless(this);
  }
  get type(): string {
    return this.#text("type")!;
  }
  get aggregateType(): string | null {
    return this.#text("aggregate_type");
  }
  get aggregateId(): string | null {
    return this.#text("aggregate_id");
  }
  get createdAt(): Date {
    return timeOf(this.#text("created_at")!);
  }
  get headers(): Headers {
    this.#headers ??= headersFrom(
      this.#edited === undefined ? this.#text("headers") : this.#edited.headers,
      this.#text("correlation_id") ?? this.id,
    );
    return this.#headers;
  }
  get body(): string | Uint8Array {
    if (this.#edited !== undefined) return bodyOf(this.#edited.payload, this.#edited.hex);
    // "\x" and the digits.
    return bodyOf(this.#text("payload"), this.#text("body")?.slice(2) ?? null);
  }

  fill(headers: string | null, payload: string | null, hex: string | null): void {
    this.#edited = { headers, payload, hex };
    this.#headers = undefined;
  }

  #text(column: Column): string | null {
    const tuple = this.#tuple;
    const at = this.#starts[this.#places[column]]!;
    if (tuple[at] === NULL) return null;
    const length = tuple.readUInt32BE(at + 1);
    return tuple.toString("utf8", at + 5, at + 5 + length);
  }
}

/** Behind the number of fields each has a letter, and one of text its length. */
function startsOf(tuple: Buffer): number[] {
  const starts: number[] = [];
  let at = 2;
  for (let left = tuple.readUInt16BE(0); left > 0; left--) {
    starts.push(at);
    at += tuple[at] === TEXT ? 5 + tuple.readUInt32BE(at + 1) : 1;
  }
  return starts;
}

/** What a Date can hold. */
const MOST_MS = 8_640_000_000_000_000;

/** Of the form that the connection is set to: ISO, in UTC. */
function timeOf(text: string): Date {
  const [, day, time, milliseconds = ""] =
    /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,3}))?\d*\+00$/.exec(text) ?? [];
  if (day !== undefined) return new Date(`${day}T${time}.${milliseconds.padEnd(3, "0")}Z`);
  // Infinite, or of another era: no outbox wrote it.
  return new Date(text.startsWith("-") || text.endsWith("BC") ? -MOST_MS : MOST_MS);
}
