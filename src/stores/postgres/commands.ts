import { commandSql } from "./parking-sql.ts";
import { plainArray, type SqlRunner } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";

/** Carries out what operators asked for, as the owner of the lanes, with nothing in hand. */
export async function carryOutCommands(
  sql: SqlRunner,
  names: Names,
  relay: string,
  cursors: readonly Cursor[],
): Promise<void> {
  for (const { id, fence, seq, lanes } of cursors) {
    await sql.query(commandSql(names), [id, fence, String(seq), relay, plainArray(lanes)]);
  }
}
