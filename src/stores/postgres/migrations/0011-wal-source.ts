import { briefly } from "./briefly.ts";
import type { OnlineMigration } from "./migration.ts";

const table = (name: string): string => `$txbox_name$"txbox"."${name}"$txbox_name$::regclass`;
const hasColumn = (of: string, column: string): string =>
  `exists (select from pg_attribute a where a.attrelid = ${table(of)} and a.attname = '${column}' and not a.attisdropped)`;

/**
 * What a relay keeps that reads its new messages from the server's own log. Columns without defaults: no row is written
 * anew, since rows of cursors carry the transaction that wrote them. The publication is made by `txbox wal enable`.
 */
export const walSource: OnlineMigration = {
  version: 11,
  name: "wal_source",
  pieces: [
    {
      title: "how far a stream has come",
      sql: briefly({
        unless: hasColumn("cursor", "wal_lsn"),
        statements: `
      -- next: the snapshot of the anchor that is on its way. wal_lsn: whatever prev does not show was committed behind it;
      -- null: no slot fits. ahead: what was delivered beyond prev, which must be the same as its own.
      alter table "txbox"."cursor" add column next pg_snapshot, add column wal_lsn pg_lsn, add column ahead json;`,
      }),
    },
    {
      title: "who can read a stream",
      sql: briefly({
        unless: hasColumn("member", "wal"),
        statements: `
      -- Null: the process does not want to. source: how its messages come at this moment, and why.
      alter table "txbox"."member" add column wal boolean, add column source text;`,
      }),
    },
  ],
};
