import type { RelayInfo } from "../../core/contracts.ts";
import { backlogs, type Backlog } from "./backlogs.ts";
import { dueSql, epochMs } from "./log-message.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import { plainArray } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/**
 * State of every relay, in at most nine statements however many relays, cursors and segments there are. Nothing that is
 * settled is looked at; what waits is counted up to a limit.
 */
export async function relayFigures(sql: SqlRunner, names: Names): Promise<RelayInfo[]> {
  const relays = await sql.query(`select name, array_to_json(streams), paused from ${names.relay} order by name`);
  if (relays.length === 0) return [];
  const cursors = Map.groupBy(await sql.query(cursorsSql(names)), ([relay]) => relay!);
  // Each by itself: joined, they would be counted again for every relay where the planner knows too little.
  const parked = await byRelay(sql, `select relay, count(*), min(position) from ${names.parked} group by relay`);
  const blocked = await byRelay(sql, `select relay, count(*) from ${names.blocked} group by relay`);
  const dead = await byRelay(sql, `select relay, count(*) from ${names.dead} where state = 'dead' group by relay`);
  const waiting = await ages(
    sql,
    names,
    [...parked.values()].map(([, , first]) => first!),
  );
  const counted = await backlogs(sql, names);
  const count = (rows: Map<string, Row>, relay: string): number => Number(rows.get(relay)?.[1] ?? 0);
  return relays.map((row) => {
    const name = row[0]!;
    const [, streams, paused] = row;
    const own = cursors.get(name) ?? [];
    const found = own.flatMap(({ 6: id }) => counted.get(id!) ?? []);
    return {
      name,
      streams: streams == null ? null : (JSON.parse(streams) as string[]),
      paused: paused === "t",
      lanes: own.map(ownerOf),
      published: own.reduce((sum, cursor) => sum + BigInt(cursor[5]!), 0n),
      pending: found.reduce((sum, { pending }) => sum + pending, count(parked, name)),
      pendingEstimated: found.some(({ estimated }) => estimated),
      oldestPendingAgeMs: oldest(found, waiting.get(parked.get(name)?.[2] ?? "")),
      parked: count(parked, name),
      blockedKeys: count(blocked, name),
      dead: count(dead, name),
    };
  });
}

async function byRelay(sql: SqlRunner, text: string): Promise<Map<string, Row>> {
  return new Map((await sql.query(text)).map((row) => [row[0]!, row]));
}

function ownerOf([, owner, epoch, leaseMs, lanes, , , source]: Row): RelayInfo["lanes"][number] {
  return {
    owner: owner!,
    epoch: BigInt(epoch!),
    leaseMs: Math.max(0, Math.round(Number(leaseMs))),
    lanes: Number(lanes),
    ...(source == null ? {} : { source }),
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
  (select m.source from ${n.member} m where m.relay = c.relay and m.owner = c.owner)
from ${n.cursor} c order by c.id`;
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
