import type { AttemptError } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import type { BlockedKey } from "../../lanes/blocked-keys.ts";
import type { Limit, ParkedPage } from "../../lanes/lane-port.ts";
import { RowCollector } from "./copied-rows.ts";
import { RowMessage, shortStream, type LogMessage } from "./log-message.ts";
import { drainSql, editsSql, soloOf } from "./parking-sql.ts";
import type { CopyRunner, Row } from "./postgres-client.ts";
import { plainArray, textArray } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import { copyPageSql, largeBodiesSql, pageSql } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";
import { Reading } from "./reading.ts";

export interface Page {
  messages: readonly LogMessage[];
  /** Nothing follows in this window. */
  last: boolean;
}

/** Several batches are read at once: planning and the way to the server cost as much for one. */
const COPIED_AHEAD = 8;
const BATCHES_AHEAD = 4;
/** Rows that arrive all at once: beyond this, reading the next ones while some are being published is worth more. */
const MAX_AHEAD = 1000;

/** A parked message that cannot be read is looked for again after this time. */
const ABSENT_RETRY_MS = 1000;
const NONE: ReadonlyMap<BlockedKey, number> = new Map();

/** Reads messages in batches that are bounded in number and bytes. */
export class PageReader {
  /** Only these streams; null: all. */
  streams: readonly string[] | null = null;
  /** Up to here some messages may have an edit. Only after a rewind such a message is new again. */
  editedUpTo = 0n;
  readonly #sql: CopyRunner;
  readonly #names: Names;
  readonly #relay: string;
  readonly #limit: Limit;
  /** Bodies up to this size are read with their page, so that a page never holds more than the limit. */
  readonly #inline: number;
  #reading: Reading | undefined;
  /** The driver can. */
  #copies = true;
  /** Bytes of a message, of those read last. */
  #average = Number.POSITIVE_INFINITY;

  constructor(sql: CopyRunner, names: Names, relay: string, limit: Limit) {
    this.#sql = sql;
    this.#names = names;
    this.#relay = relay;
    this.#limit = limit;
    this.#inline = Math.min(2 ** 31 - 1, Math.max(256, Math.floor(limit.bytes / limit.messages)));
  }

  /** The next page of a window: first what transactions that were running in `prev` left below `lo`, then the rest. */
  async page(cursor: Cursor, limit: number): Promise<Page> {
    // What was read ahead may not be what comes next: then it is of no use.
    const reading = (this.#reading =
      this.#reading?.follows(cursor) === true ? this.#reading : this.#read(cursor, limit));
    try {
      const { messages } = await this.#fit(await reading.first(limit), reading.inline);
      await this.layEditsOver(messages);
      reading.take(messages);
      if (reading.wantsNext) reading.next = this.#read({ ...cursor, fetched: reading.lastPosition }, limit);
      return { messages, last: reading.empty && reading.complete };
    } finally {
      // Whatever failed is read anew.
      if (reading.empty && this.#reading === reading) this.#reading = reading.next;
    }
  }

  #read(cursor: Cursor, limit: number): Reading {
    // A careful owner takes few at a time, and wants no more.
    const most =
      limit < this.#limit.messages
        ? limit
        : this.#copies
          ? limit * COPIED_AHEAD
          : Math.max(limit, Math.min(limit * BATCHES_AHEAD, MAX_AHEAD));
    const count = Math.min(most, Math.max(limit, Math.floor(this.#limit.bytes / this.#average)));
    const inline = Math.min(this.#inline, Math.max(256, Math.floor(this.#limit.bytes / count)));
    const reading = new Reading(cursor, count, inline);
    reading.end(this.#query(cursor, reading).then(() => (this.#average = reading.average ?? this.#average)));
    return reading;
  }

  /** Parked messages of these keys. A key ends before a message that cannot be read. */
  async parked(keys: readonly BlockedKey[], limit: number): Promise<Omit<ParkedPage<LogMessage>, "crashes">> {
    const rows = await this.#sql.query(drainSql(this.#names), [
      this.#relay,
      textArray(keys.map(({ stream }) => shortStream(stream))),
      textArray(keys.map(({ key }) => key ?? "")),
      plainArray(keys.map(soloOf)),
      String(limit),
      String(this.#inline),
    ]);
    const later = new Map<BlockedKey, number>();
    const keyOf = (row: Row) => keys[Number(row[14]) - 1]!;
    const readable = rows.filter((row) => {
      // Its segment may be changing hands, and nothing may pass it.
      if (row[0] === null) later.set(keyOf(row), ABSENT_RETRY_MS);
      return !later.has(keyOf(row));
    });
    const { messages, cut } = await this.#fit(
      readable.map((row) => new RowMessage(row)),
      this.#inline,
    );
    const found = readable.slice(0, messages.length);
    const entries = found.map(keyOf);
    for (const key of entries) later.delete(key);
    return {
      messages,
      keys: entries,
      attempts: messages.map(({ ref }, i) => (entries[i]!.head === ref ? entries[i]!.attempts : 0)),
      errors: found.map((row) => JSON.parse(row[15] ?? "[]") as AttemptError[]),
      later,
      died: NONE,
      complete: !cut && rows.length < limit,
    };
  }

  async #query(cursor: Cursor, reading: Reading): Promise<void> {
    const [fetched, floor, lastBelow] = [BigInt(cursor.fetched), BigInt(cursor.floor), cursor.lo - 1n];
    const after = fetched > floor ? fetched : floor;
    const stragglers = cursor.finished !== "{}" && after < lastBelow;
    const shape = {
      stragglers,
      lanes: cursor.lanes.length < LANES,
      streams: this.streams !== null,
      first: cursor.first,
    };
    const params = [
      String(after > lastBelow ? after : lastBelow),
      cursor.prev,
      cursor.cur!,
      String(reading.count),
      String(reading.inline),
    ];
    if (shape.stragglers) params.push(cursor.finished, String(cursor.lo), String(after));
    if (shape.lanes) params.push(plainArray(cursor.lanes));
    if (this.streams !== null) params.push(textArray(this.streams));
    if (this.#copies) {
      const rows = new RowCollector((bytes, at) => reading.add(bytes, at));
      const sent = await this.#sql.copy(copyPageSql(this.#names, shape, params), (message) => rows.add(message));
      // Fewer than were asked for means that nothing follows, so none may be missing.
      if (sent === reading.arrivals) return;
      if (sent !== undefined) throw new Error(`${sent} messages were sent, and ${reading.arrivals} have arrived`);
      this.#copies = false;
    }
    const rows = await this.#sql.query(pageSql(this.#names, shape), params);
    for (const row of rows) reading.add(row);
  }

  /** As many as fit into the limit, but at least one, with their large bodies. */
  async #fit(read: readonly LogMessage[], inline: number): Promise<{ messages: readonly LogMessage[]; cut: boolean }> {
    const large: LogMessage[] = [];
    let count = 0;
    for (let bytes = 0; count < read.length && bytes < this.#limit.bytes; count++) {
      const message = read[count]!;
      const { size } = message;
      bytes += size;
      if (size > inline) large.push(message);
    }
    const messages = count === read.length ? read : read.slice(0, count);
    if (large.length > 0) await this.#fill(large);
    return { messages, cut: count < read.length };
  }

  /** Messages in the order of their positions. */
  async layEditsOver(messages: readonly LogMessage[]): Promise<void> {
    const [first, last] = [messages[0], messages.at(-1)];
    if (first === undefined || first.position > this.editedUpTo) return;
    const edits = await this.#sql.query(editsSql(this.#names), [this.#relay, first.ref, last!.ref]);
    const byPosition = new Map(messages.map((message) => [message.ref, message]));
    for (const [position, headers, payload, hex] of edits) byPosition.get(position!)?.fill(headers!, payload!, hex!);
  }

  async #fill(messages: readonly LogMessage[]): Promise<void> {
    const positions = plainArray(messages.map((message) => message.ref));
    const rows = await this.#sql.query(largeBodiesSql(this.#names), [positions, this.#relay]);
    const bodies = new Map(rows.map((row) => [row[0], row]));
    for (const message of messages) {
      const row = bodies.get(message.ref);
      if (row === undefined) throw new Error(`The body of message ${message.ref} is gone`);
      message.fill(row[1]!, row[2]!, row[3]!);
    }
  }
}
