import type { MessageInfo, WaitingQuery } from "../../core/contracts.ts";
import { laneOf } from "../../core/lane.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { firstSegment, OF_ONE } from "./backlogs.ts";
import { infoSql, messageInfo, messagesAt, statusOver } from "./message-info.ts";
import { IN_ORDER, patient, type PlannedTransactions } from "./planned-transactions.ts";
import type { SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** So many messages that the relay has not read yet are looked at. */
const LOOKED_AT = 10_000;

/** The open messages of a key: those that are parked, and those that its relay has not read yet or has in hand. */
export function readWaiting(
  transactions: PlannedTransactions,
  names: Names,
  query: WaitingQuery,
  noSuchRelay: (relay: string) => Error,
): Promise<MessageInfo[]> {
  const { relay, stream, key, limit = DEFAULT_PAGE, contents } = query;
  return transactions.read(patient(IN_ORDER), async (sql) => {
    const known = await sql.query(`select 1 from ${names.relay} where name = $1::text`, [relay]);
    if (known.length === 0) throw noSuchRelay(relay);
    const unread = await unreadSql(sql, names, relay, laneOf(key));
    const found: MessageInfo[] = [];
    for (let after = query.after ?? -1n; found.length < limit;) {
      const wanted = limit - found.length;
      const rows = await sql.query(
        `select position from (
           (select position from ${names.parked} where relay = $1::text and stream = $2::text and key = $3::text and solo = 0
              and position > ${after} order by position limit ${wanted})
           union
           (select position from (${unread}) m where stream = $2::text and key = $3::text and position > ${after}
            order by position limit ${wanted})) m
         order by position limit ${wanted}`,
        [relay, stream, key],
      );
      const positions = rows.map(([position]) => position!);
      if (positions.length > 0) found.push(...(await openAt(sql, names, { relay, contents }, positions)));
      if (positions.length < wanted) break;
      after = BigInt(positions.at(-1)!);
    }
    return found;
  });
}

/** What lies before the cursor of a lane, see `backlogs`. The first segment stands in the text: older ones are left alone. */
async function unreadSql(sql: SqlRunner, names: Names, relay: string, lane: number): Promise<string> {
  const [row] = await sql.query(
    `select pg_snapshot_xmax(c.prev), array_to_string(array(select pg_snapshot_xip(c.prev)), ','),
       ${firstSegment(names, "pg_snapshot_xmin(c.prev)")}
     from ${names.lane} l join ${names.cursor} c on c.id = l.cursor_id where l.relay = $1::text and l.lane = ${lane}`,
    [relay],
  );
  const nothing = "select null::bigint as position, null::text as stream, null::text as key where false";
  if (row === undefined) return nothing;
  const [horizon, running, from] = row;
  const some = (where: string) =>
    `select m.position, m.stream, m.key from ${names.message} m where m.position >= ${from} and ${where} order by m.xid`;
  const late =
    running === ""
      ? nothing
      : `select m.* from unnest('{${running}}'::xid8[]) x cross join lateral (${some(OF_ONE)} offset 0) m`;
  return `(${some(`m.xid >= '${horizon}'::xid8`)} limit ${LOOKED_AT}) union all (${late})`;
}

async function openAt(
  sql: SqlRunner,
  names: Names,
  { relay, contents }: { relay: string; contents: boolean | undefined },
  positions: readonly string[],
) {
  const rows = `select * from (${statusOver(names, messagesAt(names, positions))}) s
    where relay = $1::text and status in ('pending', 'processing', 'retrying')`;
  return (await sql.query(infoSql(names, rows, "position", contents), [relay])).map(messageInfo);
}
