import type { BlockedKey, BlockedPlace, BlockedQuery } from "../../core/contracts.ts";
import { DEFAULT_PAGE } from "../shared/checked-admin.ts";
import { Conditions } from "./conditions.ts";
import { dateOf, epochMs } from "./log-message.ts";
import type { SqlRunner } from "./postgres-client.ts";
import type { Names } from "./postgres-names.ts";

/** What waits behind one key is counted up to here. */
const COUNTED = 10_000;

/**
 * A page of blocked keys by relay, stream, key and position, as the primary key has them: a page costs what is on it. A
 * key that a dead letter holds has no time for its next attempt.
 */
export async function listBlocked(sql: SqlRunner, names: Names, query: BlockedQuery): Promise<BlockedKey[]> {
  const c = new Conditions()
    .add(query.relay, (p) => `relay = ${p}`)
    .add(query.stream, (p) => `stream = ${p}`)
    .add(query.key, (p) => `key = ${p} and solo = 0`);
  if (query.after !== undefined) c.and(`(relay, stream, key, solo) > ${placeOf(c, query.after)}`);
  const ofKey = "p.relay = b.relay and p.stream = b.stream and p.key = b.key and p.solo = b.solo";
  const rows = await sql.query(
    `select b.relay, b.stream, b.key, b.solo, b.lane, b.next_at = 'infinity', coalesce(d.position, nullif(b.position, 0)),
       coalesce(d.id, m.id), coalesce(d.attempts, b.attempts), coalesce(d.last_error, b.last_error),
       (select count(*) from (select 1 from ${names.parked} p where ${ofKey} limit ${COUNTED + 1}) p),
       ${epochMs("coalesce(b.since, d.died_at, (b.errors -> 0 ->> 'at')::timestamptz)")},
       case when b.next_at <> 'infinity' then ${epochMs("b.next_at")} end
     from (select * from ${names.blocked} ${c.where} order by relay, stream, key, solo limit ${query.limit ?? DEFAULT_PAGE}) b
     left join lateral (select * from (select d.position, d.id, d.attempts, d.last_error, d.died_at from ${names.dead} d
         where b.next_at = 'infinity' and d.relay = b.relay and hashtext(d.key) = hashtext(b.key) and d.state = 'dead' and d.blocks
           and d.key = b.key and d.stream = b.stream and d.solo = b.solo offset 0) d order by position limit 1) d on true
     left join lateral (select a.id from ${names.all_message} a where d.position is null and a.position = b.position limit 1) m on true
     order by b.relay, b.stream, b.key, b.solo`,
    c.params,
  );
  return rows.map(([relay, stream, key, solo, lane, held, position, id, attempts, lastError, parked, since, next]) => {
    const heldByDead = held === "t";
    return {
      relay: relay!,
      stream: stream!,
      key: solo === "0" ? key! : null,
      lane: Number(lane),
      position: position == null ? null : BigInt(position),
      id: id!,
      attempts: Number(attempts),
      lastError: lastError!,
      heldByDead,
      // The message in front is parked as well, but for a dead letter.
      waiting: Math.min(COUNTED, Math.max(0, Number(parked) - (heldByDead ? 0 : 1))),
      since: dateOf(since!),
      nextAttemptAt: dateOf(next!),
    };
  });
}

function placeOf(c: Conditions, { relay, stream, key, position }: BlockedPlace): string {
  const solo = key === null ? String(position ?? 0n) : "0";
  return `(${c.parameter(relay)}, ${c.parameter(stream)}, ${c.parameter(key ?? "")}, ${c.parameter(solo)}::bigint)`;
}
