import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

/** Deaths are remembered of more than one message at a time: a column without a default, so no row is written anew. */
export const deathsByMessage: OnlineMigration = {
  version: 15,
  name: "deaths_by_message",
  pieces: [
    {
      title: "deaths of more than one message",
      sql: briefly({
        unless: `exists (select from pg_attribute a where a.attrelid = $txbox_name$"txbox"."cursor"$txbox_name$::regclass
          and a.attname = 'deaths' and not a.attisdropped)`,
        statements: `
      -- How many owners died with a message in hand, by its position: {"7": {"deaths": 2, "lane": 5}}. The message that was
      -- last tried alone is there from the start; what is settled is not there any more. Null: none.
      alter table "txbox"."cursor" add column deaths jsonb;`,
      }),
    },
  ],
};
