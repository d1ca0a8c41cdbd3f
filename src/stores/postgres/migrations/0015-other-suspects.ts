import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

/** Deaths are remembered of more than one message at a time: a column without a default, so no row is written anew. */
export const otherSuspects: OnlineMigration = {
  version: 15,
  name: "other_suspects",
  pieces: [
    {
      title: "deaths of more than one message",
      sql: briefly({
        unless: `exists (select from pg_attribute a where a.attrelid = $txbox_name$"txbox"."cursor"$txbox_name$::regclass
          and a.attname = 'other_suspects' and not a.attisdropped)`,
        statements: `
      -- How many owners died with a message in hand, by its position; suspect and suspect_crashes are those of the last one
      -- that was tried alone. Null: none.
      alter table "txbox"."cursor" add column other_suspects jsonb;`,
      }),
    },
  ],
};
