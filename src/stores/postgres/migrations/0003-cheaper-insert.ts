import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

const MESSAGE = `$txbox_name$"txbox"."message"$txbox_name$::regclass`;
/** Of the log and its segments. Those of segments repeat the bounds that PostgreSQL keeps by itself. */
const CHECKS = `pg_constraint c where c.contype = 'c' and c.coninhcount = 0
        and (c.conrelid = ${MESSAGE} or c.conrelid in (select i.inhrelid from pg_inherits i where i.inhparent = ${MESSAGE}))
        and c.conkey <@ (select array_agg(a.attnum) from pg_attribute a
          where a.attrelid = c.conrelid and a.attname in ('lane', 'position'))`;

/** PostgreSQL reads the text of a check anew for each INSERT. */
export const cheaperInsert: OnlineMigration = {
  version: 3,
  name: "cheaper_insert",
  pieces: [
    {
      title: "a lane out of range is refused by the procedure",
      sql: `
create or replace procedure "txbox"."enqueue"(
  id text, size integer, lane smallint, stream text, type text, key text, aggregate_type text, aggregate_id text,
  correlation_id text, headers json, payload json, body bytea
) language plpgsql as $txbox_enqueue$
begin
  -- No relay reads a lane out of range: such a message is refused, because a lane must not be null.
  insert into "txbox"."message"
    (id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body)
    values ($1, $2, case when $3 between 0 and 63 then $3 end, $4, $5, $6, $7, $8, $9, $10, $11, $12);
end
$txbox_enqueue$;
`,
    },
    {
      title: "dropping checks of the log",
      sql: briefly({
        declare: "found record;",
        unless: `not exists (select from ${CHECKS})`,
        statements: `while exists (select from ${CHECKS}) loop
        for found in select c.conrelid::regclass as relation, c.conname from ${CHECKS} loop
          execute format('alter table %s drop constraint %I', found.relation, found.conname);
        end loop;
      end loop;`,
      }),
    },
  ],
};
