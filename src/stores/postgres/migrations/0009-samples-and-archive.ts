import type { Migration } from "./migration.ts";

/**
 * What relays and consumers did lately, since when a key is blocked, and which segments are archived. Writers touch none
 * of these tables; new columns have no default for rows that are there, so that no row is written anew.
 */
export const samplesAndArchive: Migration = {
  version: 9,
  name: "samples_and_archive",
  sql: `
-- What a process did in about ten seconds. Kept for a day; a time in which nothing happened has no row.
create table "txbox"."sample" (
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
create index on "txbox"."sample" (at);
create index on "txbox"."sample" (part, name, last_error_at) where last_error_at is not null;

-- Since when the key waits; null in rows that were there before.
alter table "txbox"."blocked" add column since timestamptz;
alter table "txbox"."blocked" alter column since set default clock_timestamp();
-- The dead letters that hold a key. By a hash: no index could hold every stream and key.
create index on "txbox"."dead" (relay, hashtext(key)) where state = 'dead' and blocks;

-- The process that writes the archive of the segment, until when it may, and when it was done.
alter table "txbox"."segment" add column archive_owner text;
alter table "txbox"."segment" add column archive_until timestamptz;
alter table "txbox"."segment" add column archived_at timestamptz;
`,
};
