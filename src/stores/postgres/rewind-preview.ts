import type { RewindPreview, RewindTarget } from "../../core/contracts.ts";
import { backlogs, rowsFrom, segmentsFrom } from "./backlogs.ts";
import { dateOf, epochMs } from "./log-message.ts";
import { logSegments, positionAt, type LogSegment } from "./log-segments.ts";
import { FIRST_ONLY, type PlannedTransactions } from "./planned-transactions.ts";
import type { SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** So many messages are looked at; the number of more is estimated. */
const LOOKED_AT = 10_000;

/** Counts from the point to which a relay would go back. Of many messages the share that is counted stands for the rest. */
export function rewindPreview(
  transactions: PlannedTransactions,
  names: Names,
  relay: string,
  target: RewindTarget,
  noSuchRelay: (relay: string) => Error,
): Promise<RewindPreview> {
  return transactions.read(FIRST_ONLY, async (sql) => {
    const [known] = await sql.query(
      `select (select coalesce(max(floor), 0) from ${names.cursor} where relay = $1::text) from ${names.relay} where name = $1::text`,
      [relay],
    );
    if (known === undefined) throw noSuchRelay(relay);
    if (target === "now") return { messages: 0, estimated: false, from: null };
    // Oldest first.
    const segments = (await logSegments(sql, names)).toReversed();
    const floor = BigInt(known[0]!) + 1n;
    const start = await startOf(sql, names, segments, target);
    const first = start > floor ? start : floor;
    const look = await lookFrom(sql, names, relay, segments, first);
    if (!look.cut) return { messages: look.matching, estimated: false, from: look.from };
    const rows = rowsFrom(await segmentsFrom(sql, names, first), first);
    const share = Math.round((rows * look.matching) / look.seen) - (await unread(sql, names, relay));
    return { messages: Math.max(look.matching, share), estimated: true, from: look.from };
  });
}

/** The first position that would be read again. */
async function startOf(
  sql: SqlRunner,
  names: Names,
  segments: readonly LogSegment[],
  target: Exclude<RewindTarget, "now">,
): Promise<bigint> {
  if (target === "earliest") return 0n;
  if ("position" in target) return target.position;
  const ms = target.time.getTime();
  const segment = segments.findLast(({ openedAt }) => openedAt !== undefined && openedAt <= ms);
  return segment === undefined ? 0n : positionAt(sql, names, segment, target.time);
}

interface Look {
  seen: number;
  matching: number;
  from: Date | null;
  /** There are more messages than were looked at. */
  cut: boolean;
}

/** Segment by segment, so that no more of them are planned for than are read. What is parked was never sent. */
async function lookFrom(
  sql: SqlRunner,
  names: Names,
  relay: string,
  segments: readonly LogSegment[],
  first: bigint,
): Promise<Look> {
  const look: Look = { seen: 0, matching: 0, from: null, cut: false };
  for (const { first: start, end } of segments) {
    if (end <= first) continue;
    const left = LOOKED_AT + 1 - look.seen;
    const sent = `case when r.streams is null then m.stream not like 'inbox.%' else m.stream = any (r.streams) end
        and p.position is null and (pg_visible_in_snapshot(m.xid, c.prev)
          or c.cur is not null and m.position <= c.done and pg_visible_in_snapshot(m.xid, c.cur))`;
    const [row] = await sql.query(
      `select count(*), count(*) filter (where ${sent}), ${epochMs(`min(m.created_at) filter (where ${sent})`)}
       from (select position, xid, lane, stream, created_at from ${names.message}
         where position >= ${start > first ? start : first} and position < ${end} order by position limit ${left}) m
       join ${names.relay} r on r.name = $1::text
       join ${names.lane} l on l.relay = r.name and l.lane = m.lane & 63::smallint
       join ${names.cursor} c on c.id = l.cursor_id
       left join ${names.parked} p on p.relay = r.name and p.position = m.position`,
      [relay],
    );
    const [seen, matching, from] = row!;
    look.seen += Number(seen);
    look.matching += Number(matching);
    look.from ??= dateOf(from!);
    if (look.seen > LOOKED_AT) return { ...look, cut: true };
  }
  return look;
}

/** What the relay has not sent for a first time. */
async function unread(sql: SqlRunner, names: Names, relay: string): Promise<number> {
  const cursors = await sql.query(`select id from ${names.cursor} where relay = $1::text`, [relay]);
  const counted = await backlogs(sql, names);
  return cursors.reduce((sum, [id]) => sum + (counted.get(id!)?.pending ?? 0), 0);
}
