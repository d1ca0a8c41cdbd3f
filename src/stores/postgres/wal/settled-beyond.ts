import { uuidv7 } from "../../../core/uuid.ts";
import type { SqlRunner } from "../postgres-client.ts";
import type { Cursor } from "../postgres-cursor.ts";
import type { Names } from "../postgres-names.ts";
import type { EnteredCursor } from "../postgres-ownership.ts";
import { noteAhead, writtenAnchor } from "./anchor-sql.ts";
import type { Ahead } from "./decoded-transactions.ts";
import type { WalStream } from "./wal-stream.ts";

const NONE: Ahead = new Map();

/**
 * What streams have delivered and settled beyond the cursor: a process that goes on from the cursor leaves it out. It
 * is known in memory, and written into the row before the cursor goes to another process.
 */
export class SettledBeyond {
  readonly #sql: SqlRunner;
  readonly #names: Names;
  #ahead: { readonly prev: string; readonly ids: Ahead } = { prev: "", ids: NONE };
  #lastWrite: string | undefined;
  /** An anchor that may have been written: its token, and the snapshot that the cursor has in that case. */
  #doubtful: { readonly token: string; readonly prev: string } | undefined;
  /** A settle that may have been written: its token, and what is settled by it. */
  #pending: { readonly token: string; readonly ids: Ahead } | undefined;
  #uncounted = 0;

  constructor(sql: SqlRunner, names: Names) {
    this.#sql = sql;
    this.#names = names;
  }

  /** Messages that went out and are in no count of the cursor yet. */
  get uncounted(): number {
    return this.#uncounted;
  }

  /** They went out, and nothing was written for it. */
  count(published: number): void {
    this.#uncounted += published;
  }

  /** A settle of what came by a stream is sent, and its answer may be lost. */
  sends(token: string, ids: Ahead): void {
    this.#pending = { token, ids };
  }

  /** Something was written under the fence of the cursor. */
  written(token: string, counted: number): void {
    this.#lastWrite = token;
    this.#pending = undefined;
    this.#uncounted -= counted;
  }

  /** A stream is over. */
  take({ ahead, doubtful }: WalStream): void {
    this.#ahead = ahead;
    this.#doubtful = doubtful;
  }

  /** The cursor was loaded anew. In memory is more than in its row, if the row knows all that was written. */
  loaded({ prev, lastWrite, ahead }: EnteredCursor, isOnlyOne: boolean): void {
    const asWritten = prev === this.#ahead.prev && lastWrite === this.#lastWrite;
    const asDoubted = prev === this.#doubtful?.prev && lastWrite === this.#doubtful.token;
    const pending = prev === this.#ahead.prev && lastWrite === this.#pending?.token ? this.#pending.ids : undefined;
    if (isOnlyOne && asDoubted) this.#ahead = { prev, ids: this.#ahead.ids };
    else if (isOnlyOne && pending !== undefined) this.#ahead = { prev, ids: new Map([...this.#ahead.ids, ...pending]) };
    else if (!isOnlyOne || !asWritten) this.#ahead = { prev, ids: ahead };
    this.#lastWrite = lastWrite;
    this.#doubtful = undefined;
    this.#pending = undefined;
  }

  of({ prev }: Cursor): Ahead {
    return this.#ahead.prev === prev ? this.#ahead.ids : NONE;
  }

  /** Writes it down, under the fence of the cursor. */
  async note(cursor: Cursor): Promise<void> {
    await this.#settleDoubt(cursor);
    const noted = { token: uuidv7(), ahead: this.of(cursor), published: this.#uncounted };
    if (noted.ahead.size === 0 && noted.published === 0) return;
    const { text, params } = noteAhead(this.#names, cursor, noted);
    const rows = await this.#sql.query(text, params);
    if (rows.length === 0) return;
    cursor.seq++;
    this.written(noted.token, noted.published);
  }

  /** An anchor whose answer was lost may have moved the cursor. */
  async #settleDoubt(cursor: Cursor): Promise<void> {
    const doubtful = this.#doubtful;
    if (doubtful === undefined) return;
    const { text, params } = writtenAnchor(this.#names, cursor, doubtful.token);
    const [row] = await this.#sql.query(text, params);
    this.#doubtful = undefined;
    if (row === undefined) return;
    cursor.seq = BigInt(row[0]!);
    cursor.prev = row[1]!;
    this.#ahead = { prev: cursor.prev, ids: this.#ahead.ids };
  }
}
