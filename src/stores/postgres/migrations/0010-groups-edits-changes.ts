import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

const table = (name: string): string => `$txbox_name$"txbox"."${name}"$txbox_name$::regclass`;
const hasColumn = (of: string, column: string): string =>
  `exists (select from pg_attribute a where a.attrelid = ${table(of)} and a.attname = '${column}' and not a.attisdropped)`;
/** By columns, since a name may be any and a setting may put the text of a definition in quotes. */
const hasIndex = (of: string, column: string, and: string): string =>
  `exists (select from pg_index x join pg_attribute a on a.attrelid = x.indrelid and a.attname = '${column}'
      where x.indrelid = ${table(of)} and x.indpred is not null and ${and})`;
const hasTrigger = (of: string, name: string): string =>
  `exists (select from pg_trigger t where t.tgrelid = ${table(of)} and t.tgname = '${name}')`;

/**
 * Dead letters in groups, other contents for them, and what people changed. Writers touch none of these tables, but relays
 * do: columns and triggers are added when their locks can be had at once, and no row is written anew.
 */
export const groupsEditsChanges: OnlineMigration = {
  version: 10,
  name: "groups_edits_changes",
  pieces: [
    {
      title: "a table for changes",
      sql: `
-- What was changed through an admin. A redrive is one change, by its run.
create table if not exists "txbox"."change" (
  n bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  actor text not null default current_user,
  reason text,
  action text not null,
  relay text,
  details jsonb not null default '{}',
  count bigint,
  run text unique
);
do $txbox_do$ begin
  if (select count(*) from pg_index x where x.indrelid = ${table("change")}) = 2 then
    create index on "txbox"."change" (at);
    create index on "txbox"."change" (relay, n);
  end if;
end $txbox_do$;
`,
    },
    {
      // Its reference takes a lock on the letters.
      title: "a table for edits",
      sql: briefly({
        unless: `to_regclass($txbox_name$"txbox"."edit"$txbox_name$) is not null`,
        statements: `
      -- Other contents for a dead letter; what it was enqueued with stays in "dead". They go together.
      create table "txbox"."edit" (
        relay text not null,
        position bigint not null,
        edited_at timestamptz not null default clock_timestamp(),
        size integer not null,
        headers json,
        payload json,
        body bytea,
        primary key (relay, position),
        foreign key (relay, position) references "txbox"."dead" on delete cascade
      );`,
      }),
    },
    {
      title: "the group of a dead letter",
      sql: briefly({
        unless: hasColumn("dead", "error_group"),
        statements: `alter table "txbox"."dead" add column error_group text, add column grouped_at timestamptz;`,
      }),
    },
    {
      title: "an index of dead letters by group",
      sql: briefly({
        unless: hasIndex("dead", "error_group", "x.indkey[1] = a.attnum"),
        statements: `create index on "txbox"."dead" (relay, error_group, position) include (died_at) where state = 'dead' and error_group is not null;`,
      }),
    },
    {
      // Relays of before write none: maintenance finds those by this, and it is empty otherwise.
      title: "an index of dead letters without a group",
      sql: briefly({
        unless: hasIndex("dead", "position", "x.indkey[0] = a.attnum"),
        statements: `create index on "txbox"."dead" (position, relay) where state = 'dead' and error_group is null;`,
      }),
    },
    {
      title: "a group that is no longer right",
      sql: briefly({
        unless: hasTrigger("dead", "txbox_group"),
        statements: `
      -- A relay of before writes the error of another death, and leaves the group of the one before.
      create or replace function "txbox"."forget_group"() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $txbox_forget_group$
      begin
        new.error_group := null;
        return new;
      end
      $txbox_forget_group$;
      create trigger txbox_group before update of last_error on "txbox"."dead" for each row
        when (new.died_at is distinct from old.died_at and new.grouped_at is not distinct from old.grouped_at)
        execute function "txbox"."forget_group"();`,
      }),
    },
    {
      title: "what a process knows",
      sql: briefly({
        unless: hasColumn("member", "version"),
        statements: `alter table "txbox"."member" add column version integer;`,
      }),
    },
    {
      title: "what a process has to know",
      sql: briefly({
        unless: hasColumn("relay", "least_version"),
        statements: `alter table "txbox"."relay" add column least_version integer;`,
      }),
    },
    {
      title: "lanes for those who know enough",
      sql: briefly({
        unless: hasTrigger("cursor", "txbox_version"),
        statements: `
      -- A process that knows nothing of edits would deliver a letter as it was: it gets no lanes of a relay that had some.
      -- It reads only what every role of a relay may read already.
      create or replace function "txbox"."knows_enough"() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $txbox_knows_enough$
      begin
        if new.owner is not null and exists (
          select from "txbox"."relay" r where r.name = new.relay and r.least_version > coalesce(
            (select m.version from "txbox"."member" m where m.relay = new.relay and m.owner = new.owner), 0))
        then
          return null;
        end if;
        return new;
      end
      $txbox_knows_enough$;
      create trigger txbox_version before insert or update of owner on "txbox"."cursor" for each row
        execute function "txbox"."knows_enough"();`,
      }),
    },
  ],
};
