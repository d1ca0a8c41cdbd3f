import type { Author, Change, ChangePage, ChangeQuery } from "../../core/contracts.ts";
import type { Note } from "../shared/change-details.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { Conditions } from "./conditions.ts";
import { dateOf, epochMs } from "./log-message.ts";
import type { SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** Changes are kept this long. */
export const CHANGES_MS: number = 365 * 86_400_000;

/**
 * Notes a change in the transaction that makes it. With the number of one that was noted before, the count of this part is
 * added to that. The number of the change.
 */
export async function noteChange(
  sql: SqlRunner,
  names: Names,
  author: Author | undefined,
  { action, relay, details, count }: Note,
  noted?: string,
): Promise<string> {
  const counted = count === null ? null : String(count);
  if (noted !== undefined) {
    await sql.query(
      `update ${names.change} set count = count + $2::text::bigint where n = $1::text::bigint returning n`,
      [noted, counted],
    );
    return noted;
  }
  const run = action === "requeue" ? (author?.redrive ?? null) : null;
  const [row] = await sql.query(
    `insert into ${names.change} as c (actor, reason, action, relay, details, count, run)
     values (coalesce($1::text, current_user::text), $2::text, $3::text, $4::text, $5::text::jsonb, $6::text::bigint, $7::text)
     on conflict (run) do update set count = c.count + excluded.count returning n`,
    [
      author?.actor ?? null,
      author?.reason ?? null,
      run === null ? action : "redrive",
      relay,
      JSON.stringify(details),
      counted,
      run,
    ],
  );
  return row![0]!;
}

/** A page of changes, newest first. */
export async function listChanges(sql: SqlRunner, names: Names, query: ChangeQuery): Promise<ChangePage> {
  const { limit = DEFAULT_PAGE } = query;
  const c = new Conditions()
    .add(query.since?.toISOString(), (p) => `at >= ${p}::timestamptz`)
    .add(query.relay, (p) => `relay = ${p}`)
    .add(query.after === undefined ? undefined : String(BigInt(`0x${query.after}`)), (p) => `n < ${p}::numeric`);
  const rows = await sql.query(
    `select n, ${epochMs("at")}, actor, reason, action, relay, details, count from ${names.change} ${c.where}
     order by n desc limit ${limit + 1}`,
    c.params,
  );
  const page = rows.slice(0, limit);
  const last = rows.length > limit ? page.at(-1) : undefined;
  return {
    changes: page.map(([, at, actor, reason, action, relay, details, count]) => ({
      at: dateOf(at!)!,
      actor: actor!,
      reason: reason!,
      action: action as Change["action"],
      relay: relay!,
      details: JSON.parse(details!) as Change["details"],
      count: count == null ? null : Number(count),
    })),
    next: last === undefined ? null : BigInt(last[0]!).toString(16),
  };
}
