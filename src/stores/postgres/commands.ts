import { commandSql } from "./parking-sql.ts";
import { plainArray, type SqlRunner } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";

/** As many as one statement carries out. */
const PART = 1000;
/** New messages wait meanwhile, and everything that is blocked is loaded anew afterwards: both in turn, neither for long. */
const AT_A_TIME_MS = 500;

/** Carries out what operators asked for, as the owner of the lanes, with nothing in hand. The rest is for the next time. */
export async function carryOutCommands(
  sql: SqlRunner,
  names: Names,
  relay: string,
  cursors: readonly Cursor[],
): Promise<void> {
  const endsAt = performance.now() + AT_A_TIME_MS;
  for (const { id, fence, seq: first, lanes } of cursors) {
    // Each statement raises the number that fences the next one.
    for (let seq = first; ; seq++) {
      const rows = await sql.query(commandSql(names), [id, fence, String(seq), relay, plainArray(lanes)]);
      if (Number(rows[0]?.[0]) < PART || performance.now() > endsAt) break;
    }
  }
}
