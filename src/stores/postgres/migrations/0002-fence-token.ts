import type { Migration } from "./migration.ts";

/**
 * Epochs and sequence numbers come again after a failover to a server that had not heard of the last change of owner. A
 * random token does not. The default is a constant, so that no row is written anew: rows carry the transaction that wrote
 * them.
 */
export const fenceToken: Migration = {
  version: 2,
  name: "fence_token",
  sql: `
alter table "txbox"."cursor" add column token text not null default '';

-- As "settle", which relays of 0.1 call: a batch of which every message went out, in the middle of a window.
create function "txbox"."settle_batch"(
  relay text, lease interval, id bigint, fence text, seq bigint, upto bigint, after bigint, lanes bigint,
  messages integer, prev pg_snapshot, cur pg_snapshot
) returns setof bigint language plpgsql set enable_seqscan = off as $txbox_settle_batch$
begin
  update "txbox"."cursor" c set seq = c.seq + 1, lease_until = clock_timestamp() + $2, stamp = pg_current_xact_id(),
      settled = c.settled + $9, done = $6
    where c.relay = $1 and c.id = $3 and c.epoch || ':' || c.token = $4 and c.seq = $5
      and mod(c.stamp::text::numeric, 4294967296) = c.xmin::text::numeric;
  if not found then
    return;
  end if;
  insert into "txbox"."batch" (relay, upto, after, lanes, messages, prev, cur) values ($1, $6, $7, $8, $9, $10, $11);
  return next $3;
end
$txbox_settle_batch$;
`,
};
