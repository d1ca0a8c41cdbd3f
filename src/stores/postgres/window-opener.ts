import type { SqlRunner } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import { cursorOf, openAllSql, openSql, probeSql } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";

/** An idle relay asks this often whether there is anything before it tries to open a window. */
const PROBES_PER_OPEN = 100;

/** "not ours": a cursor has gone to another owner, or moved on. */
export type Opened = "opened" | "nothing new" | "not ours";

/** Opens windows, and asks more cheaply while there is nothing to put into one. */
export class WindowOpener {
  readonly #sql: SqlRunner;
  readonly #names: Names;
  readonly #lease: string;
  /** Looks since a window was last opened. */
  #quietOpens = 0;
  /** A snapshot in which nothing had come after `prev`. */
  #seen = { prev: "", snapshot: "" };

  constructor(sql: SqlRunner, names: Names, lease: string) {
    this.#sql = sql;
    this.#names = names;
    this.#lease = lease;
  }

  /** A settlement has tried to open one. */
  noteOpened(opened: boolean): void {
    this.#quietOpens = opened ? 0 : 1;
  }

  forget(): void {
    this.#seen = { prev: "", snapshot: "" };
  }

  /** Changes the cursors, unless they are others by the time of the answer. `anyway`: also when there is nothing new. */
  async open(cursors: readonly Cursor[], areCurrent: () => boolean, anyway = false): Promise<Opened> {
    const [first] = cursors;
    const one = cursors.length === 1 && !anyway;
    if (one && this.#quietOpens > 0 && !(await this.#hasNews(first!))) return "nothing new";
    const { text, params } = this.#statement(cursors, one);
    const rows = await this.#sql.query(text, params);
    if (!areCurrent()) return "nothing new";
    if (rows.some(([id]) => id === null)) return "not ours";
    this.noteOpened(rows.length > 0);
    for (const row of rows) {
      const cursor = cursors.find((candidate) => candidate.id === row[0])!;
      Object.assign(cursor, cursorOf(row, cursor.lanes), {
        writes: cursor.writes + 1,
        first: cursor.first,
      });
    }
    return rows.length > 0 ? "opened" : "nothing new";
  }

  #statement(cursors: readonly Cursor[], one: boolean): { text: string; params: string[] } {
    const params = [this.#lease];
    for (const cursor of cursors) params.push(cursor.id, cursor.fence, String(cursor.seq));
    if (!one) return { text: openAllSql(this.#names, cursors.length, lowestOf(cursors)), params };
    const { prev, floor, first } = cursors[0]!;
    const [, horizon, running] = prev.split(":");
    const some = running !== undefined && running !== "";
    params.push(horizon!, floor);
    if (some) params.push(`{${running}}`);
    return { text: openSql(this.#names, { prev, running: some, first }), params };
  }

  /**
   * A cheaper question than opening, for a queue that was empty a moment ago; now and then the window is opened anyway.
   */
  async #hasNews({ prev }: Cursor): Promise<boolean> {
    if (++this.#quietOpens > PROBES_PER_OPEN) return true;
    const [, horizon, running] = prev.split(":");
    const seen = this.#seen.prev === prev ? this.#seen.snapshot : "";
    const rows = await this.#sql.query(probeSql(this.#names), [seen, horizon!, `{${running ?? ""}}`]);
    const snapshot = rows[0]?.[0] ?? undefined;
    this.#seen = { prev, snapshot: snapshot ?? "" };
    return snapshot === undefined;
  }
}

function lowestOf(cursors: readonly Cursor[]): string {
  return String(cursors.map(({ first }) => BigInt(first)).reduce((a, b) => (a < b ? a : b)));
}
