import { promoteSql } from "./parking-sql.ts";
import type { SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

const LOCKED_RETRY_MS = 1000;

/** Brings in scheduled messages whose time has come; how long until the next one is due, in ms. */
export async function promoteDue(sql: SqlRunner, names: Names): Promise<number | null> {
  for (;;) {
    const rows = await sql.query(promoteSql(names), [names.lockScope]);
    const next = rows[0]![0];
    // 0: it was a full batch, and more may be due.
    if (next == null) return null;
    // Due and still there: another transaction holds its lock, as when it is being cancelled.
    if (next !== "0") return Number(next) < 0 ? LOCKED_RETRY_MS : Number(next);
  }
}
