import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

const NAME = `$txbox_name$"txbox"."message"$txbox_name$`;
const MESSAGE = `${NAME}::regclass`;
/** Hashes of what a message is looked up by. What is not given repeats the key, and the index holds it once. */
const HASHES = `(array[hashtext(key), hashtext(coalesce(aggregate_id, key)), hashtext(coalesce(correlation_id, key))])`;
/** New entries wait in a list and are sorted in together: so many kilobytes are some hundreds of messages. */
const INDEX = `using gin (${HASHES}) with (gin_pending_list_limit = 64)`;
/** The index over hashes, of the log as a whole. */
const PARENT = `(select x.indexrelid from pg_index x join pg_class i on i.oid = x.indexrelid join pg_am a on a.oid = i.relam
      where x.indrelid = ${MESSAGE} and a.amname = 'gin')`;
/** Indexes of the log that it replaces, by their columns. */
const REPLACED = `pg_index x where x.indrelid = ${MESSAGE} and x.indpred is null and array(
        select a.attname::text from unnest(x.indkey::int2[]) with ordinality k(attnum, n)
        join pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.attnum order by k.n)
      in (array['key', 'position'], array['aggregate_id', 'aggregate_type'], array['correlation_id'])`;
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
      execute format('alter index %s attach partition %s', parent, (select x.indexrelid::regclass from pg_index x
        join pg_class i on i.oid = x.indexrelid join pg_am a on a.oid = i.relam
        where x.indrelid = segment and a.amname = 'gin' and not i.relispartition limit 1));`;

/**
 * One index for key, aggregate and correlation instead of three. A segment that is written to cannot be indexed without
 * holding up writers, so they go on in a new one first.
 */
export const oneLookUpIndex: OnlineMigration = {
  version: 4,
  name: "one_look_up_index",
  pieces: [
    {
      title: "declaring the index",
      sql: briefly({
        unless: `${PARENT} is not null`,
        statements: `create index on only "txbox"."message" ${INDEX};`,
      }),
    },
    {
      // One thing a run. Where writers go is a counter that they see at once, so all else is committed before it.
      title: "opening a new segment",
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
        execute format('create table %s (like %s including defaults including indexes)', ${segment("next")}, ${MESSAGE});
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
      title: "closing the old segment",
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
      title: "indexing a segment",
      left: `select count(*) from ${WITHOUT}`,
      sql: briefly({
        declare: `parent regclass := ${PARENT};
  segment regclass;`,
        unless: `not exists (select from ${WITHOUT})`,
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
      title: "dropping the indexes that it replaces",
      sql: briefly({
        declare: "old regclass;",
        unless: `not exists (select from ${REPLACED})`,
        statements: `for old in select x.indexrelid::regclass from ${REPLACED} loop
        execute format('drop index %s', old);
      end loop;`,
      }),
    },
    {
      title: "a function for people who look for messages",
      sql: `
-- Messages with this id, key, aggregate or correlation, and what became of them.
create or replace function "txbox"."about"(id text) returns setof "txbox"."message_status" language sql stable as $txbox_about$
  select s.* from "txbox"."message_status" s where s.id = $1
    or array[hashtext(s.key), hashtext(coalesce(s.aggregate_id, s.key)), hashtext(coalesce(s.correlation_id, s.key))]
      @> array[hashtext($1)] and $1 in (s.key, s.aggregate_id, s.correlation_id)
$txbox_about$;
`,
    },
  ],
};
