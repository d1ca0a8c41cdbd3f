import type { RelayInfo } from "../../core/contracts.ts";
import type { SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** Pending messages are counted up to here, then estimated. */
const COUNT_CAP = 10_000;

interface RawFigures extends Omit<RelayInfo, "published" | "lanes"> {
  published: string;
  lanes: { owner: string | null; lanes: number; leaseMs: number; epoch: string }[];
}

/** State of every relay without counting the log: index probes, and an estimate beyond the cap. */
export async function relayFigures(sql: SqlRunner, names: Names): Promise<RelayInfo[]> {
  const n = names;
  // What a cursor has not settled: rows past prev's horizon, and those of transactions that were running in prev.
  const open = `m.position > c.floor and l.relay = c.relay and l.lane = m.lane and l.cursor_id = c.id
    and (r.streams is null or m.stream = any (r.streams))
    and not (c.cur is not null and m.position <= c.done and pg_visible_in_snapshot(m.xid, c.cur))`;
  const past = `from ${n.message} m, ${n.lane} l where m.xid >= pg_snapshot_xmax(c.prev) and ${open}`;
  const stragglers = `from pg_snapshot_xip(c.prev) x, ${n.message} m, ${n.lane} l where m.xid = x and ${open}`;
  const rows = await sql.query(
    `select json_build_object('name', r.name, 'streams', r.streams, 'paused', r.paused,
       'published', coalesce(sum(f.settled), 0)::text,
       'pending', coalesce(sum(f.pending), 0), 'pendingEstimated', coalesce(bool_or(f.capped), false),
       'oldestPendingAgeMs', date_part('epoch', clock_timestamp() - least(min(f.oldest), (
          select min(m.created_at) from ${n.blocked} b, ${n.all_message} m where b.relay = r.name and m.position = b.position))) * 1000,
       'parked', (select count(*) from ${n.parked} p where p.relay = r.name),
       'blockedKeys', (select count(*) from ${n.blocked} b where b.relay = r.name),
       'dead', (select count(*) from ${n.dead} d where d.relay = r.name and d.state = 'dead'),
       'lanes', coalesce(json_agg(json_build_object('owner', f.owner, 'lanes', f.lanes, 'epoch', f.epoch::text,
          'leaseMs', date_part('epoch', f.lease_until - clock_timestamp()) * 1000) order by f.id)
          filter (where f.id is not null), '[]'))
     from ${n.relay} r
     left join lateral (
       select c.*, (select count(*) from ${n.lane} l where l.relay = c.relay and l.cursor_id = c.id) as lanes,
         k.counted > ${COUNT_CAP} as capped,
         k.stragglers + case when k.counted <= ${COUNT_CAP} then k.counted else greatest(k.counted, (
           (select coalesce(max(position), 0) from ${n.message}) - k.first) * k.density)::bigint end as pending,
         k.oldest
       from ${n.cursor} c cross join lateral (
         select (select count(*) from (select 1 ${past} order by m.xid limit ${COUNT_CAP + 1}) capped) as counted,
           (select count(*) ${stragglers}) as stragglers,
           (select m.position ${past} order by m.xid, m.position limit 1) as first,
           least((select m.created_at ${past} order by m.xid, m.position limit 1), (select min(m.created_at) ${stragglers})) as oldest,
           (select count(*) from ${n.lane} l where l.relay = c.relay and l.cursor_id = c.id) / 64.0 as density) k
       where c.relay = r.name) f on true
     group by r.name order by r.name`,
  );
  return rows.map((row) => {
    const raw = JSON.parse(row[0]!) as RawFigures;
    const pending = Number(raw.pending) + Number(raw.parked);
    const lanes = raw.lanes.map((lane) => ({ ...lane, epoch: BigInt(lane.epoch) }));
    return { ...raw, pending, published: BigInt(raw.published), lanes };
  });
}
