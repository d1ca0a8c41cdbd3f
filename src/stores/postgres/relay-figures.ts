import type { RelayInfo } from "../../core/contracts.ts";
import { backlogs, type Backlog } from "./backlogs.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import { plainArray } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/**
 * State of every relay, in at most seven statements however many relays, cursors and segments there are. Nothing that is
 * settled is looked at; what waits is counted up to a limit.
 */
export async function relayFigures(sql: SqlRunner, names: Names): Promise<RelayInfo[]> {
  const relays = await sql.query(relaysSql(names));
  if (relays.length === 0) return [];
  const cursors = Map.groupBy(await sql.query(cursorsSql(names)), ([relay]) => relay!);
  const waiting = await ages(
    sql,
    names,
    relays.flatMap(([, , , , , , first]) => first ?? []),
  );
  const counted = await backlogs(sql, names);
  return relays.map(([name, streams, paused, parked, blockedKeys, dead, firstParked]) => {
    const own = cursors.get(name!) ?? [];
    const found = own.flatMap(({ 6: id }) => counted.get(id!) ?? []);
    return {
      name: name!,
      streams: streams == null ? null : (JSON.parse(streams) as string[]),
      paused: paused === "t",
      lanes: own.map(ownerOf),
      published: own.reduce((sum, cursor) => sum + BigInt(cursor[5]!), 0n),
      pending: found.reduce((sum, { pending }) => sum + pending, Number(parked)),
      pendingEstimated: found.some(({ estimated }) => estimated),
      oldestPendingAgeMs: oldest(found, waiting.get(firstParked ?? "")),
      parked: Number(parked),
      blockedKeys: Number(blockedKeys),
      dead: Number(dead),
    };
  });
}

function ownerOf([, owner, epoch, leaseMs, lanes]: Row): RelayInfo["lanes"][number] {
  return {
    owner: owner!,
    epoch: BigInt(epoch!),
    leaseMs: Math.max(0, Math.round(Number(leaseMs))),
    lanes: Number(lanes),
  };
}

function oldest(found: readonly Backlog[], parkedMs: number | undefined): number | null {
  let age: number | null = parkedMs ?? null;
  for (const { oldestAgeMs } of found) if (oldestAgeMs !== null) age = Math.max(age ?? 0, oldestAgeMs);
  return age === null ? null : Math.round(age);
}

function relaysSql(n: Names): string {
  return `
select r.name, array_to_json(r.streams), r.paused, coalesce(p.n, 0), coalesce(b.n, 0), coalesce(d.n, 0), p.first
from ${n.relay} r
left join (select relay, count(*) as n, min(position) as first from ${n.parked} group by relay) p on p.relay = r.name
left join (select relay, count(*) as n from ${n.blocked} group by relay) b on b.relay = r.name
left join (select relay, count(*) as n from ${n.dead} where state = 'dead' group by relay) d on d.relay = r.name
order by r.name`;
}

function cursorsSql(n: Names): string {
  return `
select c.relay, c.owner, c.epoch, date_part('epoch', c.lease_until - clock_timestamp()) * 1000, coalesce(l.n, 0), c.settled, c.id
from ${n.cursor} c left join (select cursor_id, count(*) as n from ${n.lane} group by cursor_id) l on l.cursor_id = c.id
order by c.id`;
}

/** How old the messages at these positions are, in ms. Written out, so that only their own segments are planned for. */
async function ages(sql: SqlRunner, names: Names, positions: readonly string[]): Promise<Map<string, number>> {
  if (positions.length === 0) return new Map();
  const age = "date_part('epoch', clock_timestamp() - m.created_at) * 1000";
  const rows = await sql.query(
    `select m.position, ${age} from ${names.message} m where m.position in (${positions.join(", ")})
     union all select m.position, ${age} from ${names.kept_message} m where m.position = any ($1::text::bigint[])`,
    [plainArray(positions)],
  );
  return new Map(rows.map(([position, ms]) => [position!, Number(ms)]));
}
