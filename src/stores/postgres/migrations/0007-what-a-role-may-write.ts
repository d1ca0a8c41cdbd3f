import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

const SCHEDULED = `$txbox_name$"txbox"."scheduled"$txbox_name$::regclass`;
const PATH = "set search_path = pg_catalog, pg_temp";

/**
 * Routines find functions and operators in pg_catalog alone, whatever path their caller has. The one for writers names
 * them instead, which costs no time. What is scheduled has to be a message that a relay can deliver; rows that are there
 * already are not looked at. The log itself has no checks, since every enqueue would pay for them.
 */
export const whatARoleMayWrite: OnlineMigration = {
  version: 7,
  name: "what_a_role_may_write",
  pieces: [
    {
      title: "routines under a path of their own",
      sql: `
create or replace procedure "txbox"."enqueue"(
  id text, size integer, lane smallint, stream text, type text, key text, aggregate_type text, aggregate_id text,
  correlation_id text, headers json, payload json, body bytea
) language plpgsql as $txbox_enqueue$
begin
  -- A lane out of range is refused, because a lane must not be null.
  insert into "txbox"."message"
    (id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body)
    values ($1, $2, case when $3 operator(pg_catalog.>=) 0 and $3 operator(pg_catalog.<=) 63 then $3 end,
      $4, $5, $6, $7, $8, $9, $10, $11, $12);
end
$txbox_enqueue$;
alter function "txbox"."no_news_until" ${PATH};
alter function "txbox"."settle" ${PATH};
alter function "txbox"."settle_batch" ${PATH};
create or replace function "txbox"."about"(id text) returns setof "txbox"."message_status" language sql stable as $txbox_about$
  select s.* from "txbox"."message_status" s where s.id operator(pg_catalog.=) $1
    or array[pg_catalog.hashtext(s.key), pg_catalog.hashtext(coalesce(s.aggregate_id, s.key)),
        pg_catalog.hashtext(coalesce(s.correlation_id, s.key))] operator(pg_catalog.@>) array[pg_catalog.hashtext($1)]
      and (s.key operator(pg_catalog.=) $1 or s.aggregate_id operator(pg_catalog.=) $1
        or s.correlation_id operator(pg_catalog.=) $1)
$txbox_about$;
`,
    },
    {
      title: "a check of what is scheduled",
      sql: briefly({
        unless: `exists (select from pg_constraint c where c.conrelid = ${SCHEDULED} and c.conname = 'scheduled_is_a_message')`,
        statements: `alter table "txbox"."scheduled" add constraint scheduled_is_a_message check (
        deliver_at > '-infinity' and deliver_at < '10000-01-01 00:00:00+00'
        and lane between 0 and 63 and size >= 0 and num_nonnulls(payload, body) = 1
        and id <> '' and stream <> '' and type <> '' and key <> '' and octet_length(stream) <= 200 and octet_length(type) <= 200
        and octet_length(key) <= 1024 and coalesce(json_typeof(headers), 'object') = 'object') not valid;`,
      }),
    },
  ],
};
