import type { Migration } from "./migration.ts";

/** Writers do not touch this table: only relays wait, and only while the indexes are built. */
export const deadLetterIndexes: Migration = {
  version: 5,
  name: "dead_letter_indexes",
  sql: `
-- Dead letters page by page, of all relays and of one, however many there are; and their number by relay.
create index on "txbox"."dead" (state, position, relay);
create index on "txbox"."dead" (state, relay, position);
-- Those that were dealt with, for maintenance to find when their time is over.
create index on "txbox"."dead" (changed_at) where state <> 'dead';
drop index if exists "txbox"."dead_relay_died_at_idx";
`,
};
