import type { MessagePage, MessageSearch } from "../../core/contracts.ts";
import { searchPage, type SearchPart } from "../shared/search-page.ts";
import { Conditions } from "./conditions.ts";
import { epochMs, listedColumns } from "./log-message.ts";
import { logSegments } from "./log-segments.ts";
import { isIndexed } from "./look-up.ts";
import { messageInfo, messagesAt, ownInfo, rowsAt } from "./message-info.ts";
import { IN_ORDER, patient, type PlannedTransactions } from "./planned-transactions.ts";
import type { Names } from "./postgres-names.ts";
import { logPart } from "./search-log.ts";
import {
  BY_POSITION,
  chunkOf,
  lookThrough,
  NEWEST_FIRST,
  readStatus,
  searchConditions,
  type SearchScope,
} from "./search-scope.ts";

/** A page looks at so many messages of the log. */
const LOOKED_AT = 20_000;

/** A page of messages, by the statements that find them soonest. */
export function search(transactions: PlannedTransactions, names: Names, query: MessageSearch): Promise<MessagePage> {
  return transactions.read(patient(IN_ORDER), (sql) => searchPage(query, partsOf({ sql, names, query }), LOOKED_AT));
}

function partsOf(scope: SearchScope): SearchPart[] {
  const { status, relay } = scope.query;
  if (status === "scheduled") return relay === undefined ? [scheduledPart(scope)] : [];
  if (status === "dead" && !isIndexed(scope.query)) return [deadPart(scope, "dead")];
  if (status === "retrying" && !isIndexed(scope.query)) return [retryingPart(scope)];
  return [
    logPart(scope),
    keptPart(scope),
    // A dead letter outlives its message.
    ...(status === undefined || status === "dead" ? [deadPart(scope, "outlived")] : []),
    ...(status === undefined && relay === undefined ? [scheduledPart(scope)] : []),
  ];
}

/** Messages that outlive their segments because they wait. */
function keptPart(scope: SearchScope): SearchPart {
  const { sql, names, query } = scope;
  return {
    name: "kept",
    newestFirst: false,
    ...BY_POSITION,
    read: (positions) => readStatus(scope, rowsAt(names.kept_message, positions)),
    async next(after, { part }) {
      const c = searchConditions(query);
      if (after !== undefined) c.and(`position < ${after}`);
      const rows = await sql.query(
        `select position, ${epochMs("created_at")} from ${names.kept_message} s ${c.where} order by position desc limit ${part}`,
        c.params,
      );
      const chunk = chunkOf(rows, part, { last: rows.at(-1), seen: rows.length, isLast: true });
      if (rows.length === 0) return chunk;
      // A segment that is about to go still has them.
      const list = chunk.refs.join(", ");
      const inLog = await sql.query(`select position from ${names.message} where position in (${list})`);
      const both = new Set(inLog.map(([position]) => position));
      return { ...chunk, refs: chunk.refs.filter((position) => !both.has(position)) };
    },
  };
}

/** Dead letters, as the index has them; `outlived`: those whose messages are gone with their segments. */
function deadPart({ sql, names, query }: SearchScope, name: "dead" | "outlived"): SearchPart {
  return {
    name,
    newestFirst: name === "dead",
    ...BY_POSITION,
    async read(positions) {
      const c = searchConditions(query)
        .add(query.relay, (p) => `relay = ${p}`)
        .and(`state in ('dead', 'discarded') and position in (${positions.join(", ")})`);
      const info = ownInfo({ relay: "relay", status: "dead", attempts: "attempts", lastError: "last_error" });
      const rows = await sql.query(
        `select ${listedColumns(query.contents)}, ${info}, ${query.contents === false ? "null" : "errors"} from ${names.dead} s ${c.where} order by ${NEWEST_FIRST}`,
        c.params,
      );
      return rows.map(messageInfo);
    },
    async next(after, { sight, part }) {
      const conditions = searchConditions(query);
      const [oldest] = after === undefined && name === "outlived" ? (await logSegments(sql, names)).slice(-1) : [];
      const top = after ?? (oldest === undefined ? undefined : String(oldest.first));
      const below = top === undefined ? "" : `and position < ${top}`;
      // By the index of ids, whatever else might give them in order.
      const letters =
        query.id === undefined
          ? names.dead
          : `(select * from ${names.dead} where id = ${conditions.parameter(query.id)} offset 0)`;
      const relay = query.relay === undefined ? "" : `and relay = ${conditions.parameter(query.relay)}`;
      const of = (state: string) =>
        `(select * from ${letters} d where state = '${state}' ${relay} ${below} order by position desc limit ${sight})`;
      return lookThrough(sql, {
        rows: `select * from (${of("dead")} union all ${of("discarded")}) d order by position desc`,
        conditions,
        sight: conditions.where === "" ? Math.min(sight, part) : sight,
        part,
      });
    },
  };
}

/** Messages with failed attempts that are in front of their keys. They are in order relay by relay. */
function retryingPart(scope: SearchScope): SearchPart {
  const { sql, names, query } = scope;
  return {
    name: "retrying",
    newestFirst: true,
    ...BY_POSITION,
    read: (positions) => readStatus(scope, messagesAt(names, positions)),
    async next(after, { sight, part }) {
      const c = new Conditions().add(query.relay, (p) => `r.name = ${p}`);
      const below = after === undefined ? "" : `and b.position < ${after}`;
      const rows = await sql.query(
        `with seen as materialized (select b.position, b.attempts from ${names.relay} r
           cross join lateral (select b.position, b.attempts from ${names.blocked} b
             where b.relay = r.name ${below} order by b.position desc limit ${sight}) b
           ${c.where} order by b.position desc limit ${sight})
         select position, null, null from (
           select distinct position from seen where attempts > 0 order by position desc limit ${part}) s
         union all select min(position), null, count(*) from seen`,
        c.params,
      );
      const last = rows.find(([, , seen]) => seen != null)!;
      const seen = Number(last[2]);
      return chunkOf(
        rows.filter((row) => row !== last),
        part,
        { last, seen, isLast: seen < sight },
      );
    },
  };
}

/** In the order of their ids, which hold the time of delivery unless callers chose them. */
function scheduledPart({ sql, names, query }: SearchScope): SearchPart {
  const info = ownInfo({
    relay: "null",
    status: "scheduled",
    attempts: "0",
    lastError: "null",
    deliverAt: "deliver_at",
  });
  return {
    name: "scheduled",
    newestFirst: false,
    isRef: (text) => !text.includes("\0") && text.isWellFormed(),
    refOf: ({ id }) => id,
    async read(ids) {
      const c = new Conditions();
      const list = ids.map((id) => c.parameter(id)).join(", ");
      const rows = await sql.query(
        `select ${listedColumns(query.contents)}, ${info}, null from (select null::bigint as position, s.* from ${names.scheduled} s where id in (${list})) s
         order by id desc`,
        c.params,
      );
      return rows.map(messageInfo);
    },
    async next(after, { sight, part }) {
      const c = searchConditions(query);
      const place = after === undefined ? "true" : `id < ${c.parameter(after)}`;
      const only = query.id === undefined ? "true" : `id = ${c.parameter(query.id)}`;
      const rows = await sql.query(
        `with seen as materialized (select * from ${names.scheduled} where ${place} and ${only} order by id desc limit ${sight})
         select id, null, null from (select id from seen s ${c.where} order by id desc limit ${part}) s
         union all select min(id), null, count(*) from seen`,
        c.params,
      );
      const last = rows.find(([, , seen]) => seen != null)!;
      const seen = Number(last[2]);
      return chunkOf(
        rows.filter((row) => row !== last),
        part,
        { last, seen, isLast: seen < sight },
      );
    },
  };
}
