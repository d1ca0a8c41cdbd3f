import type { Overview, UnreadStream } from "../../core/contracts.ts";
import { dateOf, epochMs, finite } from "./log-message.ts";
import type { SqlRunner } from "./postgres-client.ts";
import { readActivity } from "./postgres-history.ts";
import type { Names } from "./postgres-names.ts";

/** Scheduled messages are counted up to here, and so many of the newest messages are looked at. */
const LOOKED_AT = 10_000;
const MOST_STREAMS = 100;

/** In four statements, each of which looks at a part of bounded size. */
export async function readOverview(sql: SqlRunner, names: Names): Promise<Overview> {
  const activity = await readActivity(sql, names);
  const [scheduled] = await sql.query(
    `select (select count(*) from (select 1 from ${names.scheduled} limit ${LOOKED_AT + 1}) s),
       (select ${epochMs(finite("deliver_at"))} from ${names.scheduled} order by deliver_at limit 1)`,
  );
  const count = Number(scheduled![0]);
  return {
    activity,
    scheduled: { count: Math.min(count, LOOKED_AT), more: count > LOOKED_AT, nextAt: dateOf(scheduled![1]!) },
    unread: await unreadStreams(sql, names),
  };
}

/** As a relay reads: one without streams reads all but what inboxes have stored. The log has no index over streams. */
async function unreadStreams(sql: SqlRunner, names: Names): Promise<UnreadStream[]> {
  const rows = await sql.query(
    `select m.stream, count(*), ${epochMs("min(m.created_at)")}
     from (select stream, created_at from ${names.message} order by position desc limit ${LOOKED_AT}) m
     where not exists (select 1 from ${names.relay} r
       where case when r.streams is null then m.stream not like 'inbox.%' else m.stream = any (r.streams) end)
     group by m.stream order by count(*) desc, m.stream limit ${MOST_STREAMS}`,
  );
  return rows.map(([stream, messages, oldest]) => ({
    stream: stream!,
    messages: Number(messages),
    oldestAt: dateOf(oldest!)!,
  }));
}
