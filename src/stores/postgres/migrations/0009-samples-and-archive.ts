import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

const has = (table: string, column: string): string =>
  `exists (select from pg_attribute a where a.attrelid = $txbox_name$"txbox"."${table}"$txbox_name$::regclass and a.attname = '${column}' and not a.attisdropped)`;

/**
 * What relays and consumers did lately, since when a key is blocked, and which segments are archived. Writers touch none
 * of these tables, but relays do: columns are added when their locks can be had at once. They have no value for rows that
 * are there, so that no row is written anew.
 */
export const samplesAndArchive: OnlineMigration = {
  version: 9,
  name: "samples_and_archive",
  pieces: [
    {
      title: "a table for samples",
      sql: `
-- What a process did in about ten seconds. Kept for a day; a time in which nothing happened has no row.
create table if not exists "txbox"."sample" (
  part text not null check (part in ('relay', 'consumer')),
  name text not null,
  at timestamptz not null default clock_timestamp(),
  owner text not null,
  published bigint not null,
  retried bigint not null,
  dead bigint not null,
  unavailable bigint not null,
  processed bigint not null,
  duplicate bigint not null,
  failed bigint not null,
  rejected bigint not null,
  last_error text,
  last_error_at timestamptz,
  primary key (part, name, at, owner)
);
do $txbox_do$ begin
  if (select count(*) from pg_index x where x.indrelid = $txbox_name$"txbox"."sample"$txbox_name$::regclass) = 1 then
    create index on "txbox"."sample" (at);
    create index on "txbox"."sample" (part, name, last_error_at) where last_error_at is not null;
  end if;
end $txbox_do$;
`,
    },
    {
      title: "since when a key is blocked",
      sql: briefly({
        unless: has("blocked", "since"),
        statements: `alter table "txbox"."blocked" add column since timestamptz;
      alter table "txbox"."blocked" alter column since set default clock_timestamp();`,
      }),
    },
    {
      title: "who archives a segment",
      sql: briefly({
        unless: has("segment", "archived_at"),
        statements: `alter table "txbox"."segment" add column archive_owner text, add column archive_until timestamptz,
        add column archived_at timestamptz;`,
      }),
    },
    {
      // By a hash: no index could hold every stream and key. Of a million dead letters few hold a key.
      title: "an index of dead letters that hold a key",
      sql: briefly({
        unless: `exists (select from pg_index x where x.indrelid = $txbox_name$"txbox"."dead"$txbox_name$::regclass
        and pg_get_indexdef(x.indexrelid) like '%hashtext(key)%')`,
        statements: `create index on "txbox"."dead" (relay, hashtext(key)) where state = 'dead' and blocks;`,
      }),
    },
  ],
};
