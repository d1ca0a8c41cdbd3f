import type { Migration } from "./migration.ts";

/**
 * The cursor keeps the token of its last settle, so that one whose answer was lost is known when it is sent again. The
 * default is a constant, so that no row is written anew: rows carry the transaction that wrote them.
 */
export const knownWrites: Migration = {
  version: 8,
  name: "known_writes",
  sql: `
alter table "txbox"."cursor" add column last_write text not null default '';

-- As "settle_batch", which relays of 0.2 call, with the token.
create function "txbox"."settle_once"(
  relay text, lease interval, id bigint, fence text, seq bigint, upto bigint, after bigint, lanes bigint,
  messages integer, prev pg_snapshot, cur pg_snapshot, token text
) returns setof bigint language plpgsql set enable_seqscan = off set search_path = pg_catalog, pg_temp as $txbox_settle_once$
begin
  update "txbox"."cursor" c set seq = c.seq + 1, lease_until = clock_timestamp() + $2, stamp = pg_current_xact_id(),
      settled = c.settled + $9, done = $6, last_write = $12
    where c.relay = $1 and c.id = $3 and c.epoch || ':' || c.token = $4 and c.seq = $5
      and mod(c.stamp::text::numeric, 4294967296) = c.xmin::text::numeric;
  if not found then
    return;
  end if;
  insert into "txbox"."batch" (relay, upto, after, lanes, messages, prev, cur) values ($1, $6, $7, $8, $9, $10, $11);
  return next $3;
end
$txbox_settle_once$;
`,
};
