import { PermanentError, TxboxError } from "../../core/errors.ts";
import type { RedisArgument } from "./plain-connection.ts";
import type { RawFields } from "./redis-envelope.ts";
import { isReply } from "./redis-errors.ts";
import type { RedisLink } from "./redis-link.ts";
import { BURY, COUNT, LEAVE, LET_GO, RENEW, SWEEP, TOUCH } from "./redis-scripts.ts";

export interface StreamEntry {
  readonly id: string;
  readonly fields: RawFields;
}

export function sizeOfEntry({ fields }: StreamEntry): number {
  return fields.reduce((bytes, field) => bytes + field.length, 0);
}

/** An entry that a consumer has and has not acknowledged. `deliveries` is the number of its present attempt. */
export interface PendingEntry {
  readonly id: string;
  readonly member: string;
  readonly deliveries: number;
}

export interface PendingQuery {
  after: string | undefined;
  count: number;
  minIdleMs?: number;
  member?: string;
}

/** More than the server's Lua can pass on in one call, or more than it should copy while all others wait. */
const MANY_FIELDS = 6000;
const LARGE = 1024 * 1024;

/** Everything that is asked of Redis about one stream, by one member of one group. */
export class StreamGroup {
  readonly streamKey: string;
  readonly group: string;
  readonly member: string;
  readonly #link: RedisLink;
  readonly #lock: string;

  constructor(link: RedisLink, streamKey: string, group: string, member: string) {
    this.#link = link;
    this.streamKey = streamKey;
    this.group = group;
    this.member = member;
    // Names often have colons: another stream and group must not make the same text.
    this.#lock = `${streamKey}:${encodeURIComponent(group)}:reader`;
  }

  /** Throws `not_found` for what is missing and may not be created. */
  async ensure(declare: boolean): Promise<void> {
    const { streamKey, group } = this;
    if (declare) {
      try {
        await this.#link.command(["XGROUP", "CREATE", streamKey, group, "0", "MKSTREAM"]);
      } catch (error) {
        if (!isReply(error, "BUSYGROUP")) throw wrongType(error, streamKey);
      }
      return;
    }
    if (Number(await this.#link.command(["EXISTS", streamKey])) === 0)
      throw missing(`There is no stream "${streamKey}" in Redis`);
    if ((await this.#about()) === undefined) throw missing(`The stream "${streamKey}" has no group "${group}"`);
  }

  /** The id up to which the group has been given entries. */
  async lastDelivered(): Promise<string> {
    return (await this.#about())?.get("last-delivered-id") ?? "0-0";
  }

  async pending({ after, count, minIdleMs = 0, member }: PendingQuery): Promise<PendingEntry[]> {
    const idle = minIdleMs === 0 ? [] : ["IDLE", String(minIdleMs)];
    const range = [after === undefined ? "-" : `(${after}`, "+", String(count)];
    const of = member === undefined ? range : [...range, member];
    const reply = await this.#link.command(["XPENDING", this.streamKey, this.group, ...idle, ...of]);
    return (reply as [Buffer, Buffer, number, number][]).map(([id, owner, , deliveries]) => ({
      id: id.toString(),
      member: owner.toString(),
      deliveries,
    }));
  }

  /** Takes pending entries over; those that are gone, or not idle for so long, are not among the answer. */
  async claim(ids: readonly string[], minIdleMs: number, deliveries: number): Promise<StreamEntry[]> {
    const to = ["XCLAIM", this.streamKey, this.group, this.member, String(minIdleMs)];
    return entriesOf(await this.#link.command([...to, ...ids, "RETRYCOUNT", String(deliveries)]));
  }

  async exists(id: string): Promise<boolean> {
    return entriesOf(await this.#link.command(["XRANGE", this.streamKey, id, id])).length > 0;
  }

  /**
   * New entries, if the lock is held with this token; undefined when it is not. The server gives them out only if the
   * lock has not been touched since we looked: a script could compare, but would copy every body while all others wait.
   * `own`: a connection that no other call uses meanwhile.
   */
  async take(own: RedisLink, token: string, count: number): Promise<StreamEntry[] | undefined> {
    const { streamKey, group, member } = this;
    const read = ["XREADGROUP", "GROUP", group, member, "COUNT", String(count), "STREAMS", streamKey, ">"];
    const connection = await own.connection();
    for (;;) {
      const [, holder] = await Promise.all([
        connection.command(["WATCH", this.#lock]),
        connection.command(["GET", this.#lock]),
      ]);
      if (String(holder) !== token) return undefined;
      const replies = await connection.transaction([read]);
      // Renewed meanwhile, or another's.
      if (replies !== null) return entriesOf(ofOneStream(replies[0]));
    }
  }

  /** New entries; waits for some over a connection of its own. */
  async read(blocking: RedisLink, count: number, blockMs: number): Promise<StreamEntry[]> {
    const { streamKey, group, member } = this;
    const how = ["GROUP", group, member, "COUNT", String(count), "BLOCK", String(blockMs)];
    const reply = await blocking.command(["XREADGROUP", ...how, "STREAMS", streamKey, ">"], blockMs + 5000);
    return entriesOf(ofOneStream(reply));
  }

  /** Resolves when there is an entry after this one, or when the time is over. */
  async waitForMore(blocking: RedisLink, after: string, blockMs: number): Promise<void> {
    const read = ["XREAD", "COUNT", "1", "BLOCK", String(blockMs), "STREAMS", this.streamKey, after];
    await blocking.command(read, blockMs + 5000);
  }

  async acknowledge(ids: readonly string[]): Promise<void> {
    await this.#link.command(["XACK", this.streamKey, this.group, ...ids]);
  }

  async moveToDeadLetters(id: string, deadKey: string, fields: readonly RedisArgument[]): Promise<void> {
    if (fields.length <= MANY_FIELDS && fields.every(({ length }) => length <= LARGE)) {
      await this.#link.run(BURY, [this.streamKey, deadKey], [this.group, id, ...fields]);
      return;
    }
    await this.#link.transaction([
      ["XADD", deadKey, "*", ...fields],
      ["XACK", this.streamKey, this.group, id],
    ]);
  }

  /** Keeps the number of attempts for the next process that has the entry. */
  async failed(id: string, attempts: number): Promise<void> {
    await this.#link.run(COUNT, [this.streamKey], [this.group, this.member, id, String(attempts + 1)]);
  }

  /** Shows that these are being worked on. Refused: entries that another member has taken over. */
  async touch(ids: readonly string[]): Promise<(Error | undefined)[]> {
    const reply = await this.#link.run(TOUCH, [this.streamKey], [this.group, this.member, ...ids]);
    const lost = new Set((reply as Buffer[]).map(String));
    return ids.map((id) => (lost.has(id) ? new PermanentError(`Another consumer has entry ${id}`) : undefined));
  }

  async acquire(token: string, ms: number): Promise<boolean> {
    return (await this.#link.command(["SET", this.#lock, token, "NX", "PX", String(ms)])) !== null;
  }

  /** With a turn, what is asked with an earlier one finds the lock another's from now on. */
  async renew(owner: string, ms: number, turn = ""): Promise<"ours" | "nobody's" | "another's"> {
    const reply = Number(await this.#link.run(RENEW, [this.#lock], [owner, String(ms), turn]));
    if (reply === 0) return "nobody's";
    return reply > 0 ? "ours" : "another's";
  }

  async letGo(owner: string): Promise<void> {
    await this.#link.run(LET_GO, [this.#lock], [owner]);
  }

  async leave(deleteMember: boolean): Promise<void> {
    await this.#link.run(LEAVE, [this.streamKey], [this.group, this.member, deleteMember ? "1" : "0"]);
  }

  async sweep(idleMs: number): Promise<void> {
    await this.#link.run(SWEEP, [this.streamKey], [this.group, String(idleMs)]);
  }

  async #about(): Promise<Map<string, string> | undefined> {
    let groups: unknown;
    try {
      groups = await this.#link.command(["XINFO", "GROUPS", this.streamKey]);
    } catch (error) {
      throw wrongType(error, this.streamKey);
    }
    for (const info of groups as unknown[][]) {
      const about = new Map<string, string>();
      for (let i = 0; i + 1 < info.length; i += 2) about.set(String(info[i]), String(info[i + 1]));
      if (about.get("name") === this.group) return about;
    }
    return undefined;
  }
}

/** RESP2 answers pairs of stream and entries, RESP3 a map; both may be nothing. */
function ofOneStream(reply: unknown): unknown {
  if (!Array.isArray(reply) || reply.length === 0) return [];
  return Array.isArray(reply[0]) ? (reply[0][1] as unknown) : (reply[1] as unknown);
}

/** Entries that were deleted have no fields, or are no entries at all. */
function entriesOf(reply: unknown): StreamEntry[] {
  const entries: StreamEntry[] = [];
  for (const entry of (reply ?? []) as ([Buffer, RawFields | null] | null)[]) {
    if (entry?.[1] != null) entries.push({ id: entry[0].toString(), fields: entry[1] });
  }
  return entries;
}

function missing(what: string): TxboxError {
  return new TxboxError("not_found", what, {
    field: "streams",
    fix: "Check the name, or let createRedisSubscriber create it with declare: true",
  });
}

function wrongType(error: unknown, streamKey: string): unknown {
  if (!isReply(error, "WRONGTYPE")) return error;
  return new TxboxError("invalid_option", `The key "${streamKey}" in Redis holds something else than a stream`, {
    field: "streams",
    fix: "Check the name",
    cause: error,
  });
}
