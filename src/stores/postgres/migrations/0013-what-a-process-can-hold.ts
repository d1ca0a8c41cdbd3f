import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

/** What a process tells of itself, for the doctor: a column without a default, so no row is written anew. */
export const whatAProcessCanHold: OnlineMigration = {
  version: 13,
  name: "what_a_process_can_hold",
  pieces: [
    {
      title: "how many parked messages a process can hold",
      sql: briefly({
        unless: `exists (select from pg_attribute a where a.attrelid = $txbox_name$"txbox"."member"$txbox_name$::regclass
          and a.attname = 'max_parked' and not a.attisdropped)`,
        statements: `
      -- With so many messages behind failed ones, it takes no new ones. Null: a process before 0.7, which does not tell.
      alter table "txbox"."member" add column max_parked integer;`,
      }),
    },
  ],
};
