import type { AttemptError } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import type { BlockedKey } from "./blocked-keys.ts";
import { LogMessage } from "./log-message.ts";
import { drainSql } from "./parking-sql.ts";
import type { SqlRunner } from "./postgres-client.ts";
import { plainArray, textArray } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import { largeBodiesSql, pageSql } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";

export interface Page {
  messages: LogMessage[];
  /** Nothing follows in this window. */
  last: boolean;
}

export interface ParkedPage {
  messages: LogMessage[];
  /** The key of each message. */
  entries: BlockedKey[];
  errors: AttemptError[][];
  /** More may be parked than was read. */
  full: boolean;
}

export interface BatchLimit {
  messages: number;
  bytes: number;
}

/** Small batches are read several at once: planning and the way to the server cost as much for one. */
const BATCHES_AHEAD = 4;
/** Beyond this, reading the next batch while one is being published is worth more. */
const MAX_AHEAD = 1000;

/** Messages of a window that were read and not handed out yet. */
interface ReadAhead {
  readonly cursor: string;
  readonly cur: string;
  /** The same array as the cursor's, or the lanes are others by now. */
  readonly lanes: readonly number[];
  /** They follow this position. */
  readonly after: string;
  readonly messages: readonly LogMessage[];
  /** Nothing follows them in the window. */
  readonly complete: boolean;
}

/** Reads messages in batches that are bounded in number and bytes. */
export class PageReader {
  /** Only these streams; null: all. */
  streams: readonly string[] | null = null;
  readonly #sql: SqlRunner;
  readonly #names: Names;
  readonly #limit: BatchLimit;
  /** Bodies up to this size are read with their page, so that a page never holds more than the limit. */
  readonly #inline: number;
  #ahead: ReadAhead | undefined;
  /** Bytes of a message, of those read last. */
  #average = Number.POSITIVE_INFINITY;

  constructor(sql: SqlRunner, names: Names, limit: BatchLimit) {
    this.#sql = sql;
    this.#names = names;
    this.#limit = limit;
    this.#inline = Math.min(2 ** 31 - 1, Math.max(256, Math.floor(limit.bytes / limit.messages)));
  }

  /** The next page of a window: first what transactions that were running in `prev` left below `lo`, then the rest. */
  async page(cursor: Cursor, limit: number): Promise<Page> {
    const { messages: read, complete } = this.#readAhead(cursor) ?? (await this.#read(cursor, limit));
    const { messages } = await this.#fit(read.slice(0, limit));
    const rest = read.slice(messages.length);
    const after = messages.at(-1)?.positionText ?? cursor.fetched;
    const { id, lanes } = cursor;
    this.#ahead =
      rest.length === 0 ? undefined : { cursor: id, cur: cursor.cur!, lanes, after, messages: rest, complete };
    return { messages, last: complete && rest.length === 0 };
  }

  /** What was read with an earlier page, if it is what comes next. */
  #readAhead({ id, cur, lanes, fetched }: Cursor): ReadAhead | undefined {
    const ahead = this.#ahead;
    const fits = ahead?.cursor === id && ahead.cur === cur && ahead.lanes === lanes && ahead.after === fetched;
    return fits ? ahead : undefined;
  }

  async #read(cursor: Cursor, limit: number): Promise<Pick<ReadAhead, "messages" | "complete">> {
    // A careful owner takes few at a time, and wants no more.
    const most = limit < this.#limit.messages ? limit : Math.max(limit, Math.min(limit * BATCHES_AHEAD, MAX_AHEAD));
    const count = Math.min(most, Math.max(limit, Math.floor(this.#limit.bytes / this.#average)));
    const messages = await this.#query(cursor, count);
    if (messages.length > 0) {
      const bytes = messages.reduce((sum, message) => sum + (message.sizeOfLarge ?? message.length), 0);
      this.#average = Math.max(1, bytes / messages.length);
    }
    return { messages, complete: messages.length < count };
  }

  async parked(relay: string, keys: readonly BlockedKey[], limit: number): Promise<ParkedPage> {
    const rows = await this.#sql.query(drainSql(this.#names), [
      relay,
      textArray(keys.map((key) => key.stream)),
      textArray(keys.map((key) => key.key)),
      plainArray(keys.map((key) => key.solo)),
      String(limit),
      String(this.#inline),
    ]);
    // A key ends at a message that cannot be read: its segment may be changing hands, and nothing may pass it.
    const ended = new Set<string | null>();
    const readable = rows.filter((row) => {
      if (row[0] === null) ended.add(row[14]!);
      return !ended.has(row[14]!);
    });
    const { messages, cut } = await this.#fit(readable.map((row) => new LogMessage(row)));
    const entries = messages.map((_, i) => keys[Number(readable[i]![14]) - 1]!);
    const errors = messages.map((_, i) => JSON.parse(readable[i]![15] ?? "[]") as AttemptError[]);
    return { messages, entries, errors, full: cut || rows.length === limit };
  }

  async #query(cursor: Cursor, limit: number): Promise<LogMessage[]> {
    const [fetched, floor, lastBelow] = [BigInt(cursor.fetched), BigInt(cursor.floor), cursor.lo - 1n];
    const after = fetched > floor ? fetched : floor;
    const stragglers = cursor.fin !== "{}" && after < lastBelow;
    const shape = { stragglers, lanes: cursor.lanes.length < LANES, streams: this.streams !== null };
    const params = [
      String(after > lastBelow ? after : lastBelow),
      cursor.prev,
      cursor.cur!,
      String(limit),
      String(Math.min(this.#inline, Math.max(256, Math.floor(this.#limit.bytes / limit)))),
    ];
    if (shape.stragglers) params.push(cursor.fin, String(cursor.lo), String(after));
    if (shape.lanes) params.push(plainArray(cursor.lanes));
    if (this.streams !== null) params.push(textArray(this.streams));
    const rows = await this.#sql.query(pageSql(this.#names, shape), params);
    return rows.map((row) => new LogMessage(row));
  }

  /** As many as fit into the limit, but at least one, with their large bodies. */
  async #fit(read: LogMessage[]): Promise<{ messages: LogMessage[]; cut: boolean }> {
    const large: LogMessage[] = [];
    let count = 0;
    for (let bytes = 0; count < read.length && bytes < this.#limit.bytes; count++) {
      const message = read[count]!;
      const { sizeOfLarge } = message;
      bytes += sizeOfLarge ?? message.length;
      if (sizeOfLarge !== undefined) large.push(message);
    }
    const messages = count === read.length ? read : read.slice(0, count);
    if (large.length > 0) await this.#fill(large);
    return { messages, cut: count < read.length };
  }

  async #fill(messages: readonly LogMessage[]): Promise<void> {
    const positions = plainArray(messages.map((message) => message.positionText));
    const rows = await this.#sql.query(largeBodiesSql(this.#names), [positions]);
    const bodies = new Map(rows.map((row) => [row[0], row]));
    for (const message of messages) {
      const row = bodies.get(message.positionText);
      if (row === undefined) throw new Error(`The body of message ${message.positionText} is gone`);
      message.fillBody(row[1]!, row[2]!);
    }
  }
}
