import type { RelayInfo } from "../../core/contracts.ts";
import { backlogs, type Backlog } from "./backlogs.ts";
import { dueSql, epochMs } from "./log-message.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import { plainArray } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/**
 * State of every relay, in at most six statements however many relays, cursors and segments there are. Nothing that is
 * settled is looked at; what waits is counted up to a limit.
 */
export async function relayFigures(sql: SqlRunner, names: Names): Promise<RelayInfo[]> {
  const relays = await sql.query(relaysSql(names));
  if (relays.length === 0) return [];
  const cursors = Map.groupBy(await sql.query(cursorsSql(names)), ([relay]) => relay!);
  const waiting = await ages(
    sql,
    names,
    relays.flatMap(({ 4: first }) => first ?? []),
  );
  const counted = await backlogs(sql, names);
  return relays.map((row) => {
    const name = row[0]!;
    const [, streams, paused] = row;
    const [parked, blockedKeys, dead] = [Number(row[3]), Number(row[5]), Number(row[6])];
    const own = cursors.get(name) ?? [];
    const found = own.flatMap(({ 6: id }) => counted.get(id!) ?? []);
    return {
      name,
      streams: streams == null ? null : (JSON.parse(streams) as string[]),
      paused: paused === "t",
      lanes: own.map(ownerOf),
      published: own.reduce((sum, cursor) => sum + BigInt(cursor[5]!), 0n),
      pending: found.reduce((sum, { pending }) => sum + pending, parked),
      pendingEstimated: found.some(({ estimated }) => estimated),
      oldestPendingAgeMs: oldest(found, waiting.get(row[4] ?? "")),
      parked,
      blockedKeys,
      dead,
    };
  });
}

/**
 * What is parked, blocked and dead is counted by the index of each relay: a hundred thousand keys are counted in half the
 * time that it takes to group them, and without workers of the server.
 */
function relaysSql(n: Names): string {
  return `
select r.name, array_to_json(r.streams), r.paused, p.count, p.first,
  (select count(*) from ${n.blocked} b where b.relay = r.name),
  (select count(*) from ${n.dead} d where d.state = 'dead' and d.relay = r.name)
from ${n.relay} r cross join lateral (select count(*) as count, min(k.position) as first from ${n.parked} k where k.relay = r.name) p
order by r.name`;
}

function ownerOf([, owner, epoch, leaseMs, lanes, , , source, maxParked]: Row): RelayInfo["lanes"][number] {
  return {
    owner: owner!,
    epoch: BigInt(epoch!),
    leaseMs: Math.max(0, Math.round(Number(leaseMs))),
    lanes: Number(lanes),
    ...(source == null ? {} : { source }),
    ...(maxParked == null ? {} : { maxParked: Number(maxParked) }),
  };
}

function oldest(found: readonly Backlog[], parkedMs: number | undefined): number | null {
  let age: number | null = parkedMs ?? null;
  for (const { oldestAgeMs } of found) if (oldestAgeMs !== null) age = Math.max(age ?? 0, oldestAgeMs);
  return age === null ? null : Math.round(age);
}

function cursorsSql(n: Names): string {
  return `
select c.relay, c.owner, c.epoch, ${epochMs("c.lease_until - clock_timestamp()")},
  (select count(*) from ${n.lane} l where l.relay = c.relay and l.cursor_id = c.id), c.settled, c.id,
  m.source, m.max_parked
from ${n.cursor} c left join ${n.member} m on m.relay = c.relay and m.owner = c.owner order by c.id`;
}

/** How long the messages at these positions have been due, in ms. Written out, so that only their own segments are planned for. */
async function ages(sql: SqlRunner, names: Names, positions: readonly string[]): Promise<Map<string, number>> {
  if (positions.length === 0) return new Map();
  const age = epochMs(`clock_timestamp() - ${dueSql("m")}`);
  const rows = await sql.query(
    `select m.position, ${age} from ${names.message} m where m.position in (${positions.join(", ")})
     union all select m.position, ${age} from ${names.kept_message} m where m.position = any ($1::text::bigint[])`,
    [plainArray(positions)],
  );
  return new Map(rows.map(([position, ms]) => [position!, Number(ms)]));
}
