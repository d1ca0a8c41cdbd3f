import type { StoredKey } from "../../lanes/lane-port.ts";
import { COPIED_COLUMNS, epochMs, finite, messageColumns } from "./log-message.ts";
import type { Row } from "./postgres-client.ts";
import { DURABLE, fenced, SOUND } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";

/** Parameters: relay, lanes. */
export function loadBlockedSql(names: Names): string {
  return `
select b.lane, b.stream, b.key, b.solo, b.position, b.attempts, b.last_error,
  case when b.next_at = 'infinity' then null else ${epochMs("b.next_at - pg_catalog.clock_timestamp()")} end,
  (select pg_catalog.count(*) from ${names.parked} p where p.relay = b.relay and p.stream = b.stream and p.key = b.key and p.solo = b.solo)
from ${names.blocked} b where b.relay = $1::text and b.lane = any ($2::text::smallint[])`;
}

/** Which of some positions are parked. Parameters: relay, positions. */
export function stillParkedSql(names: Names): string {
  return `
select p.position from pg_catalog.unnest($2::text::bigint[]) w (position)
join ${names.parked} p on p.relay = $1::text and p.position = w.position`;
}

export function storedKeyOf(row: Row): StoredKey {
  const single = row[3]!;
  return {
    lane: Number(row[0]),
    stream: row[1]!,
    key: single === "0" ? row[2]! : null,
    single: single === "0" ? null : single,
    head: row[4]!,
    attempts: Number(row[5]),
    lastError: row[6] ?? undefined,
    dueInMs: row[7] == null ? 0 : Number(row[7]),
    held: row[7] == null,
    parked: Number(row[8]),
  };
}

/** In the tables, a message that needs no order has its position here and an empty key. */
export function soloOf({ single }: Pick<StoredKey, "single">): string {
  return single === null ? "0" : (single as string);
}

/** A message (`m`) with what a person made of it (`e`) laid over it. */
function editedMessage(): string {
  const kept = "position, id, stream, type, key, aggregate_type, aggregate_id, correlation_id, created_at, lane".split(
    ", ",
  );
  const other = ["headers", "payload", "body", "size"].map((column) => `${edited(column, "m")} as ${column}`);
  return [...kept.map((column) => `m.${column}`), ...other].join(", ");
}

/** A column of an edit (`e`) where there is one, else of the row that it is laid over. */
export function edited(column: string, row: string): string {
  return `case when e.position is null then ${row}.${column} else e.${column} end`;
}

/** Edits of a part of the log. Parameters: relay, first and last position. */
export function editsSql(names: Names): string {
  return `
select e.position, e.headers, e.payload, pg_catalog.encode(e.body, 'hex') from ${names.edit} e
where e.relay = $1::text and e.position >= $2::text::bigint and e.position <= $3::text::bigint`;
}

/** The last position with an edit; "0": there is none. Parameter: relay. */
export function lastEditSql(names: Names): string {
  return `select coalesce(pg_catalog.max(e.position), 0) from ${names.edit} e where e.relay = $1::text`;
}

/**
 * Parked messages of some keys, in order, each with the number of its key and its errors; a row of nulls stands for a message that
 * cannot be read at this moment. Parameters: relay, streams, keys, solos, limit, inline. The fences keep the planner
 * from joining the parked rows with the whole log.
 */
export function drainSql(names: Names): string {
  return `
select ${messageColumns("$6::text::int")}, nth, errors from (
  select ${editedMessage()}, k.nth, p.position as parked_position, (
    select nullif(b.errors, '[]') from ${names.blocked} b where b.relay = $1::text and b.stream = k.stream
      and b.key = k.key and b.solo = k.solo and b.position = p.position) as errors
  from unnest($2::text::text[], $3::text::text[], $4::text::bigint[]) with ordinality as k (stream, key, solo, nth)
  cross join lateral (
    select p.position from ${names.parked} p
    where p.relay = $1::text and p.stream = k.stream and p.key = k.key and p.solo = k.solo
    order by p.position limit $5::text::int) p
  left join lateral (select * from ${names.all_message} a where a.position = p.position limit 1) m on true
  left join lateral (select * from ${names.edit} e where e.relay = $1::text and e.position = p.position) e on true
  order by p.position limit $5::text::int) page order by parked_position`;
}

/**
 * Carries out the commands on dead letters of a cursor's lanes: requeued ones are parked again, in order with what waits
 * for their key already; a discarded one no longer blocks its key. Parameters: id, fence, seq, relay, lanes, limit.
 */
export function commandSql(names: Names): string {
  const n = names;
  return `
with due as materialized (select d.relay, d.position, d.blocks as blocked from ${n.dead} d
    where d.relay = $4::text and d.command is not null and d.lane = any ($5::text::smallint[])
    order by d.position limit $6::text::int),
-- What comes again is not blamed for deaths of before: processes of before 0.8 leave them behind.
c as (update ${n.cursor} c set seq = c.seq + 1, stamp = pg_catalog.pg_current_xact_id(),
    deaths = nullif(c.deaths - array(select position::text from due), '{}'),
    suspect = case when pg_catalog.abs(c.suspect) in (select position from due) then null else c.suspect end,
    suspect_crashes = case when pg_catalog.abs(c.suspect) in (select position from due) then 0 else c.suspect_crashes end
    where ${fenced(1, 2, 3)} and ${SOUND} returning c.id, ${DURABLE}),
told as (update ${n.dead} d set command = null, blocks = false, changed_at = pg_catalog.clock_timestamp(),
    state = case d.command when 'requeue' then 'requeued' else 'discarded' end
    from due, c where d.relay = due.relay and d.position = due.position returning d.*, due.blocked),
kept as (insert into ${n.kept_message} (position, xid, ${COPIED_COLUMNS})
    select position, pg_catalog.pg_current_xact_id(), ${COPIED_COLUMNS} from told where state = 'requeued'
    on conflict (position) do update set position = excluded.position),
keyed as (select told.*, ${blockKey("told")} as block_key, ${blockStream("told")} as block_stream from told),
parked as (insert into ${n.parked} (relay, position, lane, stream, key, solo)
    select relay, position, lane, block_stream, block_key, solo from keyed where state = 'requeued' on conflict do nothing),
-- Another dead letter of the key may hold it still. All keys are looked up at once: one by one, many would take for ever.
touched as (select block_stream, block_key, solo, pg_catalog.min(lane) as lane, pg_catalog.min(position) as position,
    pg_catalog.bool_or(holds) as held
    from (select block_stream, block_key, solo, lane, position, false as holds from keyed where state = 'requeued' or blocked
      union all
      select ${blockStream("d")}, ${blockKey("d")}, d.solo, null, null, true from ${n.dead} d
      where d.relay = $4::text and d.state = 'dead' and d.blocks and d.lane = any ($5::text::smallint[])
        and (d.command is null or d.position > (select pg_catalog.max(position) from due))
        and exists (select 1 from ${n.blocked} where relay = $4::text and next_at = 'infinity')) k
    group by block_stream, block_key, solo having not pg_catalog.bool_and(holds)),
freed as (insert into ${n.blocked} as b (relay, lane, stream, key, solo, position, attempts, next_at)
    select $4::text, lane, block_stream, block_key, solo, position, 0,
      case when held then 'infinity'::timestamptz else pg_catalog.clock_timestamp() end from touched
    on conflict (relay, stream, key, solo) do update
      set position = least(nullif(b.position, 0), excluded.position), attempts = 0, last_error = null, errors = '[]',
        next_at = excluded.next_at)
select pg_catalog.count(*) from told`;
}

/** How a key is named among the blocked ones. */
const blockKey = (row: string): string => `case when ${row}.solo = 0 then ${row}.key else '' end`;

/** As in BlockedKeys: no index could hold a longer name. */
const blockStream = (row: string): string =>
  `case when pg_catalog.octet_length(${row}.stream) > 1024 then pg_catalog.left(${row}.stream, 256) else ${row}.stream end`;

/** Moves due scheduled messages into the log, one process at a time; ms until the next one. Parameter: lock scope. */
export function promoteSql(names: Names): string {
  return `
with turn as materialized (select pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended($1::text || ':scheduled', 0)) as mine),
due as (select s.id from ${names.scheduled} s, turn where turn.mine and s.deliver_at <= pg_catalog.clock_timestamp()
    order by s.deliver_at, s.n limit 1000 for update of s skip locked),
gone as (delete from ${names.scheduled} s using due where s.id = due.id returning s.*),
moved as (insert into ${names.message} (${COPIED_COLUMNS}) select ${COPIED_COLUMNS} from gone order by deliver_at, n returning 1),
-- The time for which a chosen id is remembered begins with its delivery.
remembered as (update ${names.enqueued_id} e set enqueued_at = pg_catalog.clock_timestamp() from gone where e.id = gone.id)
select case when (select pg_catalog.count(*) from moved) = 1000 then 0 else
  (select ${epochMs(`${finite("pg_catalog.min(s.deliver_at)")} - pg_catalog.clock_timestamp()`)} from ${names.scheduled} s
   where not exists (select 1 from due where due.id = s.id)) end`;
}
