import type { Migration } from "./migration.ts";

/** Where one transaction wrote most of a segment, the question of an idle relay walked it by position. */
export const newsByIndex: Migration = {
  version: 6,
  name: "news_by_index",
  sql: `
create or replace function "txbox"."no_news_until"(seen text, horizon xid8, running xid8[]) returns text
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off as $txbox_no_news_until$
declare
  present text := pg_current_snapshot()::text;
begin
  if present = seen then
    return present;
  end if;
  if (select m.xid from "txbox"."message" m where m.xid >= horizon order by m.xid limit 1) is not null
    or exists (select from unnest(running) x where
      (select m.xid from "txbox"."message" m where m.xid >= x and m.xid <= x order by m.xid limit 1) is not null)
  then
    return null;
  end if;
  return present;
end
$txbox_no_news_until$;
`,
};
