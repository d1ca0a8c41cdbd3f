import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

const NAME = `$txbox_name$"txbox"."message"$txbox_name$`;
const MESSAGE = `${NAME}::regclass`;
/** A hash, with the part of the log in which it is: entries of one value are apart for every 65,536 positions. */
const entry = (value: string): string => `("position" >> 16 << 32) | (hashtext(${value})::bigint & 4294967295)`;
/** Of what a message is looked up by. What is not given repeats the key, and the index holds it once. */
const ENTRIES = `(array[${entry("key")}, ${entry("coalesce(aggregate_id, key)")}, ${entry("coalesce(correlation_id, key)")}])`;
/** New entries wait in a list and are sorted in together: so many kilobytes are some hundreds of messages. */
const INDEX = `using gin (${ENTRIES}) with (gin_pending_list_limit = 64)`;
/** Both look-up indexes are of this kind; only the newer one knows positions. */
const GIN = `pg_index x join pg_class i on i.oid = x.indexrelid join pg_am a on a.oid = i.relam and a.amname = 'gin'`;
const IS_NEW = `pg_get_indexdef(x.indexrelid) like '%>> 16%'`;
/** The index, of the log as a whole, and the one that it replaces. */
const PARENT = `(select x.indexrelid from ${GIN} where x.indrelid = ${MESSAGE} and ${IS_NEW})`;
const REPLACED = `(select x.indexrelid::regclass from ${GIN} where x.indrelid = ${MESSAGE} and not ${IS_NEW}
        and pg_get_indexdef(x.indexrelid) like '%hashtext(key)%' limit 1)`;
/** Segments (s) whose part of the index is missing. */
const WITHOUT = `pg_inherits s where s.inhparent = ${MESSAGE} and not s.inhdetachpending and not exists (
        select from pg_inherits p join pg_index x on x.indexrelid = p.inhrelid
        where p.inhparent = ${PARENT} and x.indrelid = s.inhrelid)`;

/** Name of a segment's table, by an expression for its number. */
const segment = (n: string): string => `(select format('%I.%I', n.nspname, c.relname || '_' || ${n})
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = ${MESSAGE})`;
const OPEN = `(select max(g.n) from "txbox"."segment" g where g.opened_at is not null)`;
const OPEN_IS_WITHOUT = `exists (select from ${WITHOUT} and s.inhrelid = to_regclass(${segment(OPEN)}))`;

const ATTACH = `execute format('create index on %s ${INDEX}', segment);
      execute format('alter index %s attach partition %s', parent, (select x.indexrelid::regclass from ${GIN}
        where x.indrelid = segment and ${IS_NEW} and not i.relispartition limit 1));`;

/** The same, under whatever path the caller has. */
function searched(m: string): string {
  const values = [`${m}.key`, `coalesce(${m}.aggregate_id, ${m}.key)`, `coalesce(${m}.correlation_id, ${m}.key)`];
  const entries = values.map(
    (value) => `(${m}.position operator(pg_catalog.>>) 16 operator(pg_catalog.<<) 32)
                operator(pg_catalog.|) (pg_catalog.hashtext(${value})::pg_catalog.int8 operator(pg_catalog.&) 4294967295)`,
  );
  return `array[${entries.join(", ")}]`;
}

/**
 * The look-up index keeps entries apart by where they are in the log. A key of a million messages is so found from the
 * newest back, without a look at where all of them are. New entries come to the end of the index, which is cheaper to
 * write. As before, a segment that is written to is left by its writers first.
 */
export const lookUpsByPlace: OnlineMigration = {
  version: 14,
  name: "look_ups_by_place",
  pieces: [
    {
      title: "declaring the index by place",
      sql: briefly({
        unless: `${PARENT} is not null`,
        statements: `create index on only "txbox"."message" ${INDEX};`,
      }),
    },
    {
      // One thing a run. Where writers go is a counter that they see at once, so all else is committed before it.
      title: "opening a segment with the index by place",
      left: `select count(*) where ${OPEN_IS_WITHOUT}`,
      sql: briefly({
        declare: `parent regclass := ${PARENT};
  next bigint;
  segment regclass;
  filled boolean;`,
        unless: `not ${OPEN_IS_WITHOUT}`,
        statements: `if not pg_try_advisory_xact_lock(hashtextextended('txbox_lock_scope' || ':segments', 0)) then
        raise lock_not_available;
      end if;
      segment := ${segment(OPEN)}::regclass;
      next := ${OPEN} + 1;
      execute format('select exists (select from %s)', segment) into filled;
      if filled then
        segment := to_regclass(${segment("next")});
      end if;
      if segment is null then
        execute format('create table %s (like %s including defaults including constraints including indexes)', ${segment("next")}, ${MESSAGE});
        execute format('alter table %s attach partition %s for values from (%s) to (%s)', ${MESSAGE},
          ${segment("next")}, next * 4294967296, (next + 1) * 4294967296);
        insert into "txbox"."segment" (n) values (next);
      elsif exists (select from ${WITHOUT} and s.inhrelid = segment) then
        ${ATTACH}
      else
        perform setval(q.seq, next * 4294967296 - 1)
          from (select pg_get_serial_sequence(${NAME}, 'position')::regclass as seq) q
          where coalesce(pg_sequence_last_value(q.seq), 0) < next * 4294967296 - 1;
        update "txbox"."segment" set opened_at = clock_timestamp() where n = next;
      end if;`,
      }),
    },
    {
      // After the commit above, so that everyone who may still write to the old segment is seen.
      title: "closing the segment before it",
      sql: `
update "txbox"."segment" s set closed_at = clock_timestamp(), writers = coalesce((
    select array_agg(distinct l.virtualtransaction) from pg_locks l
    where l.locktype = 'relation' and l.relation = ${MESSAGE}
      and l.database = (select oid from pg_database where datname = current_database())
      and l.pid is distinct from pg_backend_pid()), '{}')
  where s.closed_at is null and s.opened_at is not null
    and exists (select 1 from "txbox"."segment" later where later.n > s.n and later.opened_at is not null);
`,
    },
    {
      title: "indexing a segment by place",
      left: `select count(*) from ${WITHOUT}`,
      sql: briefly({
        declare: `parent regclass := ${PARENT};
  segment regclass;`,
        unless: `not exists (select from ${WITHOUT})`,
        unvacuumed: `select s.inhrelid::regclass from ${WITHOUT} order by s.inhrelid limit 1`,
        statements: `select s.inhrelid::regclass into segment from ${WITHOUT} order by s.inhrelid limit 1;
      -- Those who drew a position before the segment was closed still hold the log.
      if exists (select from "txbox"."segment" g join pg_locks l on l.virtualtransaction = any (g.writers)
        where l.relation = ${MESSAGE} and l.pid is distinct from pg_backend_pid()) then
        raise lock_not_available;
      end if;
      ${ATTACH}`,
      }),
    },
    {
      title: "dropping the index that it replaces",
      sql: briefly({
        declare: "old regclass;",
        unless: `${REPLACED} is null`,
        unvacuumed: `select s.inhrelid::regclass from pg_inherits s where s.inhparent = ${MESSAGE} order by s.inhrelid`,
        statements: `old := ${REPLACED};
      execute format('drop index %s', old);`,
      }),
    },
    {
      title: "a function that looks messages up by place",
      sql: `
-- Messages with this id, key, aggregate or correlation, and what became of them.
create or replace function "txbox"."about"(id text) returns setof "txbox"."message_status" language sql stable as $txbox_about$
  select s.* from "txbox"."message_status" s
  where s.position operator(pg_catalog.=) any (array(
      select m.position from "txbox"."message" m where m.id operator(pg_catalog.=) $1
      union select k.position from "txbox"."kept_message" k
        where $1 operator(pg_catalog.=) any (array[k.id, k.key, k.aggregate_id, k.correlation_id])
      union select m.position from "txbox"."message" m
        where ${searched("m")} operator(pg_catalog.&&) (
            select pg_catalog.array_agg((b operator(pg_catalog.<<) 32)
              operator(pg_catalog.|) (pg_catalog.hashtext($1)::pg_catalog.int8 operator(pg_catalog.&) 4294967295))
            from "txbox"."segment" g
            cross join lateral pg_catalog.generate_series(g.n operator(pg_catalog.<<) 16, (
              select t.position from "txbox"."message" t
              where t.position operator(pg_catalog.>=) (g.n operator(pg_catalog.*) 4294967296)
                and t.position operator(pg_catalog.<) ((g.n operator(pg_catalog.+) 1) operator(pg_catalog.*) 4294967296)
              order by t.position desc limit 1) operator(pg_catalog.>>) 16) b)
          and $1 operator(pg_catalog.=) any (array[m.key, m.aggregate_id, m.correlation_id])))
    or s.position is null and $1 operator(pg_catalog.=) any (array[s.id, s.key, s.aggregate_id, s.correlation_id])
$txbox_about$;
`,
    },
  ],
};
