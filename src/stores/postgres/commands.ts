import { commandSql } from "./parking-sql.ts";
import { plainArray, type SqlRunner } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import { isCancelled } from "./postgres-errors.ts";
import type { Names } from "./postgres-names.ts";

/** As many as one statement carries out at most. */
export const MOST_COMMANDS = 1000;
/** New messages wait meanwhile, and everything that is blocked is loaded anew afterwards: both in turn, neither for long. */
const AT_A_TIME_MS = 500;

/**
 * Carries out what operators asked for, as the owner of the lanes, with nothing in hand. The rest is for the next time. A
 * statement that the server cancels is tried with fewer: how many went well is the `limit` of the next time.
 */
export async function carryOutCommands(
  sql: SqlRunner,
  names: Names,
  relay: string,
  cursors: readonly Cursor[],
  limit: number,
): Promise<number> {
  const endsAt = performance.now() + AT_A_TIME_MS;
  let part = limit;
  for (const { id, fence, seq: first, lanes } of cursors) {
    for (let seq = first; ;) {
      try {
        const params = [id, fence, String(seq), relay, plainArray(lanes), String(part)];
        const rows = await sql.query(commandSql(names), params);
        if (Number(rows[0]?.[0]) < part || performance.now() > endsAt) break;
        // Each statement raises the number that fences the next one.
        seq++;
      } catch (error) {
        if (!isCancelled(error) || part === 1) throw error;
        part = Math.ceil(part / 4);
      }
    }
  }
  return part;
}
