import type { RelayInfo } from "../../core/contracts.ts";
import { LANES } from "../../core/lane.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** Pending messages are counted up to here, then estimated. */
const COUNT_CAP = 10_000;
/** Over how many positions the share of rows per position is taken for an estimate. */
const SAMPLE = 10_000;

interface PendingFigures {
  pending: number;
  estimated: boolean;
  oldestAgeMs: number | null;
}

/** State of every relay without counting the log: index probes from each cursor's horizon, an estimate beyond the cap. */
export async function relayFigures(sql: SqlRunner, names: Names): Promise<RelayInfo[]> {
  const relays = await sql.query(relaysSql(names));
  const cursors = await sql.query(cursorsSql(names));
  const infos: RelayInfo[] = [];
  for (const [name, streams, paused, parked, blockedKeys, dead, waitingMs] of relays) {
    const own = cursors.filter((cursor) => cursor[0] === name);
    const figures: PendingFigures[] = [];
    for (const cursor of own) figures.push(await pendingOf(sql, names, cursor, streams!));
    const ages = [waitingMs === null ? null : Number(waitingMs), ...figures.map((figure) => figure.oldestAgeMs)];
    infos.push({
      name: name!,
      streams: streams === null ? null : (JSON.parse(streams!) as string[]),
      paused: paused === "t",
      lanes: own.map((cursor) => ({
        owner: cursor[1]!,
        epoch: BigInt(cursor[2]!),
        leaseMs: Math.max(0, Math.round(Number(cursor[3]))),
        lanes: Number(cursor[4]),
      })),
      published: own.reduce((sum, cursor) => sum + BigInt(cursor[5]!), 0n),
      pending: figures.reduce((sum, figure) => sum + figure.pending, Number(parked)),
      pendingEstimated: figures.some((figure) => figure.estimated),
      oldestPendingAgeMs: ages.reduce(
        (oldest, age) => (age === null ? oldest : Math.max(oldest ?? 0, Math.round(age))),
        null,
      ),
      parked: Number(parked),
      blockedKeys: Number(blockedKeys),
      dead: Number(dead),
    });
  }
  return infos;
}

function relaysSql(n: Names): string {
  return `
select r.name, array_to_json(r.streams), r.paused,
  (select count(*) from ${n.parked} p where p.relay = r.name), (select count(*) from ${n.blocked} b where b.relay = r.name),
  (select count(*) from ${n.dead} d where d.relay = r.name and d.state = 'dead'),
  (select max(date_part('epoch', clock_timestamp() - m.created_at)) * 1000
   from (select min(p.position) as position from ${n.parked} p where p.relay = r.name) first
   cross join lateral (select created_at from ${n.all_message} a where a.position = first.position limit 1) m)
from ${n.relay} r order by r.name`;
}

function cursorsSql(n: Names): string {
  return `
select c.relay, c.owner, c.epoch, date_part('epoch', c.lease_until - clock_timestamp()) * 1000,
  (select count(*) from ${n.lane} l where l.relay = c.relay and l.cursor_id = c.id), c.settled,
  c.prev, pg_snapshot_xmax(c.prev), c.cur, c.done, c.floor,
  (select array_agg(l.lane) from ${n.lane} l where l.relay = c.relay and l.cursor_id = c.id)
from ${n.cursor} c order by c.id`;
}

/** What one cursor has not settled: rows past the horizon of `prev`, and those of transactions that ran in it. */
async function pendingOf(sql: SqlRunner, names: Names, cursor: Row, streams: string | null): Promise<PendingFigures> {
  const [prev, horizon, cur, done, floor, lanes] = cursor.slice(6);
  const params = [floor!, lanes ?? "{}", streams, cur!, done!];
  const open = `m.position > $1::text::bigint and m.lane = any ($2::text::smallint[])
    and ($3::text is null and m.stream not like 'inbox.%' or m.stream in (select json_array_elements_text($3::text::json)))
    and ($4::text is null or m.position > $5::text::bigint or not pg_visible_in_snapshot(m.xid, $4::text::pg_snapshot))`;
  const rows = await sql.query(
    `select count(*), min(position), date_part('epoch', clock_timestamp() - min(created_at)) * 1000 from (
       select m.position, m.created_at from ${names.message} m where m.xid >= $6::text::xid8 and ${open}
       order by m.xid limit ${COUNT_CAP + 1}) past
     union all
     select count(*), null, date_part('epoch', clock_timestamp() - min(m.created_at)) * 1000
     from pg_snapshot_xip($7::text::pg_snapshot) x
     cross join lateral (select * from ${names.message} s where s.xid = x order by s.position) m where ${open}`,
    [...params, horizon!, prev!],
  );
  const [past, late] = rows;
  const counted = Number(past![0]);
  const ages = rows.flatMap((row) => (row[2] === null ? [] : [Number(row[2])]));
  const estimated = counted > COUNT_CAP;
  const estimate = estimated ? await distance(sql, names, BigInt(past![1]!), Number(cursor[4]) / LANES) : counted;
  return {
    pending: Math.max(counted, estimate) + Number(late![0]),
    estimated,
    oldestAgeMs: ages.length === 0 ? null : Math.max(...ages),
  };
}

/** Positions in use from there to the end of the log, times the recent share of rows per position and of lanes. */
async function distance(sql: SqlRunner, names: Names, from: bigint, laneShare: number): Promise<number> {
  // Segments leave gaps between each other, so each is measured on its own.
  const rows = await sql.query(
    `select r.first, r.last, (select count(*) from ${names.message} m where m.position > r.last - ${SAMPLE} and m.position >= r.first
         and m.position <= r.last)
     from ${names.segment} s cross join lateral (
       select greatest(min(position), $1::text::bigint) as first, max(position) as last from ${names.message} m
       where m.position >= s.n * 4294967296 and m.position < (s.n + 1) * 4294967296) r
     where (s.n + 1) * 4294967296 > $1::text::bigint and r.last >= $1::text::bigint`,
    [String(from)],
  );
  return rows.reduce((sum, [first, last, sampled]) => {
    const span = Number(BigInt(last!) - BigInt(first!) + 1n);
    return sum + Math.round(span * (Number(sampled) / Math.min(SAMPLE, span)) * laneShare);
  }, 0);
}
