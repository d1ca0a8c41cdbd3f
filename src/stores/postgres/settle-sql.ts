import { errorGroup } from "../../core/error-group.ts";
import type { Settlement, StoredKey } from "../../lanes/lane-port.ts";
import { COPIED_COLUMNS, shortStream, type LogMessage } from "./log-message.ts";
import { soloOf } from "./parking-sql.ts";
import { plainArray } from "./postgres-client.ts";
import type { Cursor } from "./postgres-cursor.ts";
import { allVisible, DURABLE, FENCE, finishedOf, LEASE, lowestPast, MAX_POSITION, SOUND } from "./postgres-cursor.ts";
import type { Names } from "./postgres-names.ts";
import type { StreamPage } from "./wal/decoded-transactions.ts";

export interface SettleStatement {
  text: string;
  params: (string | null)[];
}

/** Where the cursor stands after a page of its window. */
export interface WindowEnd {
  readonly upto: string;
  /** Nothing follows in the window. */
  readonly last: boolean;
  /** Messages of the page that were delivered before the window was opened. */
  readonly leftOut: number;
}

/** Settling a page of a window moves the cursor; of a stream, anchors do that later. */
export type PageEnd = WindowEnd | { readonly streamed: StreamPage };

export interface SettleInput {
  relay: string;
  cursor: Cursor;
  settlement: Settlement<LogMessage, PageEnd>;
  progress: Progress;
  lease: string;
  /** Positions of suspects that are settled. */
  cleared: readonly string[];
  /** Finish the window and open the next one, if there is anything new: a round trip less for what waits. */
  reopen: boolean;
  /** Messages that went out before and are in no count yet. */
  uncounted: number;
}

/** How far a settlement brings its cursor. */
export interface Progress {
  /** The cursor moves to this position; undefined: it stays. */
  readonly done: string | undefined;
  /** The window is finished. */
  readonly finish: boolean;
  /** Messages read from the log, for the batch row. */
  readonly messages: number;
}

export function progressOf({ pages }: Settlement<LogMessage, PageEnd>): Progress {
  let done: string | undefined;
  let finish = false;
  let messages = 0;
  for (const { mark, complete, messages: its } of pages) {
    if ("streamed" in mark) continue;
    messages += its.length + (complete ? mark.leftOut : 0);
    // Without outcomes the cursor stays where an earlier page may have put it.
    done = complete ? mark.upto : (its.at(-1)?.ref ?? done);
    finish = complete && mark.last;
  }
  return { done, finish, messages };
}

const ASYNCHRONOUS = "pg_catalog.set_config('synchronous_commit', 'off', true)";

/** At most this many errors are kept per message. */
const KEPT_ERRORS = 20;

/**
 * One statement per batch, committed asynchronously. `epoch`, `token` and `seq` are the fence: when the row has changed, nothing
 * else in the statement happens. `seq` chains settles, so that one lost in a crash cannot be stepped over by the next.
 * Gives the id of the cursor and its window; with one that it has opened, the commit is durable as in `openSql`.
 */
export function settleStatement(names: Names, input: SettleInput): SettleStatement {
  const { cursor, settlement, progress } = input;
  if (isCommon(input)) return commonStatement(names, input);
  const params: (string | null)[] = [];
  const add = (value: string | null) => `$${params.push(value)}::text`;
  const json = (value: unknown) => `${add(JSON.stringify(value))}::jsonb`;
  const relay = add(input.relay);

  const sets = [
    "seq = seq + 1",
    `lease_until = ${LEASE(add(input.lease).replace("::text", ""))}`,
    "stamp = pg_catalog.pg_current_xact_id()",
    `last_write = ${add(settlement.token)}`,
  ];
  if (settlement.clearCrashes) sets.push("crashes = 0");
  if (input.cleared.length > 0) {
    const cleared = add(plainArray(input.cleared));
    const isCleared = `pg_catalog.abs(suspect) = any (${cleared}::bigint[])`;
    sets.push(`suspect = case when ${isCleared} then null else suspect end`);
    sets.push(`suspect_crashes = case when ${isCleared} then 0 else suspect_crashes end`);
    sets.push(`deaths = nullif(deaths - ${cleared}::text[], '{}')`);
  }
  const published = settlement.published + input.uncounted;
  if (published > 0) sets.push(`settled = settled + ${published}`);
  if (input.reopen) sets.push("prev = c.cur", "cur = n.cur", "fin = n.fin", "lo = n.lo", "done = 0");
  else if (progress.finish) sets.push("prev = cur", "cur = null", "fin = null", "lo = null", "done = 0");
  else if (progress.done !== undefined) sets.push(`done = ${add(progress.done)}::bigint`);

  const parts = [
    `c as (update ${names.cursor} c set ${sets.join(", ")} ${input.reopen ? "from next n" : ""}
     where c.relay = ${relay} and c.id = ${add(cursor.id)}::bigint and ${FENCE} = ${add(cursor.fence)}
       and c.seq = ${add(String(cursor.seq))}::bigint and ${SOUND}
     returning c.id, c.cur, c.fin, c.lo, ${input.reopen ? `case when c.cur is null then ${ASYNCHRONOUS} else ${DURABLE} end` : ASYNCHRONOUS} as commit_mode)`,
  ];
  if (input.reopen) {
    const [, horizon, running] = cursor.cur!.split(":");
    const some = running !== undefined && running !== "";
    const lo = lowestPast(names, `${add(horizon!)}::xid8`, `${add(cursor.floor)}::bigint`, cursor.first);
    const fin = some
      ? finishedOf(names, `pg_catalog.unnest(${add(`{${running}}`)}::xid8[])`, cursor.first)
      : "'{}'::xid8[]";
    parts.unshift(`news as materialized (select ${lo} as lo, ${fin} as fin),
     next as (select case when is_news then pg_catalog.pg_current_snapshot() end as cur, case when is_news then fin end as fin,
         case when is_news then coalesce(lo, ${MAX_POSITION}) end as lo
       from (select *, (lo is not null or pg_catalog.cardinality(fin) > 0) and ${allVisible(names)} as is_news from news) n)`);
  }
  if (progress.messages > 0 && progress.done !== undefined) {
    parts.push(`receipts as (insert into ${names.batch} (relay, upto, after, lanes, messages, prev, cur)
     select ${relay}, ${add(progress.done)}::bigint, ${add(cursor.done)}::bigint, ${add(laneMask(cursor.lanes))}::bigint,
       ${progress.messages}, ${add(cursor.prev)}::pg_snapshot, ${add(cursor.cur!)}::pg_snapshot from c)`);
  }
  const { park, unpark, dead, block, unblock } = settlement;
  if (park.length > 0) {
    const rows = park.map(({ message, key }) => ({ position: message.ref, lane: key.lane, ...rowKey(key) }));
    parts.push(`park as (insert into ${names.parked} (relay, position, lane, stream, key, solo)
     select ${relay}, p.position, p.lane, p.stream, p.key, p.solo
     from c, pg_catalog.jsonb_to_recordset(${json(rows)}) as p (position bigint, lane smallint, stream text, key text, solo bigint)
     on conflict do nothing)`);
  }
  if (unpark.length > 0) {
    const gone = unpark.map(({ message, attempts, lastError, published }) => {
      return { position: message.ref, attempts, error: lastError ?? null, published };
    });
    const rows = `pg_catalog.jsonb_to_recordset(${json(gone)}) as g (position bigint, attempts integer, error text, published boolean)`;
    parts.push(
      `gone as (delete from ${names.parked} p using c, ${rows} where p.relay = ${relay} and p.position = g.position)`,
    );
    parts.push(`delivered as (insert into ${names.delivery} (relay, position, attempts, last_error, published_at)
     select ${relay}, g.position, g.attempts, g.error, pg_catalog.clock_timestamp() from c, ${rows} where g.published
     on conflict (relay, position) do update
       set attempts = excluded.attempts, last_error = excluded.last_error, published_at = excluded.published_at)`);
  }
  if (block.length > 0) parts.push(blockPart(names, relay, json(block.map(blockRow))));
  if (unblock.length > 0) {
    parts.push(`unblock as (delete from ${names.blocked} b using c,
       pg_catalog.jsonb_to_recordset(${json(unblock.map(rowKey))}) as u (stream text, key text, solo bigint)
     where b.relay = ${relay} and b.stream = u.stream and b.key = u.key and b.solo = u.solo)`);
  }
  if (dead.length > 0) {
    const rows = dead.map(({ message, key, attempts, error, block: blocks }) => {
      const group = errorGroup(message.type, error);
      return { position: message.ref, attempts, error, group, block: blocks, ...rowKey(key) };
    });
    parts.push(deadPart(names, relay, json(rows)));
  }
  return { text: `with ${parts.join(",\n")}\nselect id, cur, fin, lo, commit_mode from c`, params };
}

/**
 * What a settlement that was written before left behind; no row: it was not. Of a cursor that has changed hands since, or
 * was rewound, the window is not this owner's: then there is none. Parameters: id, token, fence, seq.
 */
export function writtenSql(names: Names): string {
  const own = `${FENCE} = $3::text and c.seq = $4::text::bigint + 1`;
  return `select c.id, case when ${own} then c.cur end, c.fin, c.lo from ${names.cursor} c where c.id = $1::text::bigint and c.last_write = $2::text`;
}

/** Every message of it went out, and the window goes on. */
function isCommon({ cleared, settlement, progress, uncounted }: SettleInput): boolean {
  const { park, retried, unpark, dead, block, unblock, published, clearCrashes } = settlement;
  const plain = park.length + retried.length + unpark.length + dead.length + block.length + unblock.length === 0;
  const wentOut = progress.messages > 0 && published === progress.messages;
  const goesOn = progress.done !== undefined && !progress.finish;
  return plain && wentOut && goesOn && !clearCrashes && cleared.length === 0 && uncounted === 0;
}

function commonStatement(names: Names, { relay, lease, cursor, settlement, progress }: SettleInput): SettleStatement {
  const { id, fence, seq, done, lanes, prev, cur } = cursor;
  const values = [
    relay,
    lease,
    id,
    fence,
    String(seq),
    progress.done!,
    done,
    laneMask(lanes),
    String(progress.messages),
  ];
  const types = ["text", "interval", "bigint", "text", "bigint", "bigint", "bigint", "bigint", "int"];
  const params = [...values, prev, cur!, settlement.token];
  const given = [...types, "pg_snapshot", "pg_snapshot", "text"].map((type, i) => `$${i + 1}::text::${type}`);
  return { text: `select id, ${ASYNCHRONOUS} from ${names.settle_once}(${given.join(", ")}) id`, params };
}

function rowKey({ stream, key, single }: Pick<StoredKey, "stream" | "key" | "single">) {
  return { stream: shortStream(stream), key: key ?? "", solo: soloOf({ single }) };
}

function blockRow(key: StoredKey & { readonly errors: readonly string[] }): object {
  return {
    lane: key.lane,
    ...rowKey(key),
    position: key.head ?? "0",
    attempts: key.attempts,
    delay: key.held ? null : key.dueInMs,
    last_error: key.lastError ?? null,
    errors: key.errors,
  };
}

function blockPart(names: Names, relay: string, rows: string): string {
  return `block as (insert into ${names.blocked} as b (relay, lane, stream, key, solo, position, attempts, next_at, last_error, errors)
     select ${relay}, k.lane, k.stream, k.key, k.solo, k.position, k.attempts,
       case when k.delay is null then 'infinity'::timestamptz else pg_catalog.clock_timestamp() + k.delay * interval '1 ms' end,
       k.last_error, coalesce((select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('at', pg_catalog.clock_timestamp(), 'error', e))
         from pg_catalog.jsonb_array_elements_text(k.errors) e), '[]')
     from c, pg_catalog.jsonb_to_recordset(${rows}) as k (lane smallint, stream text, key text, solo bigint, position bigint,
       attempts integer, delay double precision, last_error text, errors jsonb)
     on conflict (relay, stream, key, solo) do update set position = excluded.position, attempts = excluded.attempts,
       next_at = excluded.next_at, last_error = excluded.last_error,
       errors = case when excluded.attempts = 0 or b.position <> excluded.position then excluded.errors
                     else pg_catalog.jsonb_path_query_array(b.errors || excluded.errors, '$[last - ${KEPT_ERRORS - 1} to last]') end)`;
}

function deadPart(names: Names, relay: string, rows: string): string {
  const from = COPIED_COLUMNS.replaceAll(/\w+/g, "m.$&").replace("m.lane", "m.lane & 63::smallint");
  return `dead as (insert into ${names.dead} as d (relay, position, solo, blocks, attempts, last_error, error_group, grouped_at, errors, ${COPIED_COLUMNS})
     select ${relay}, x.position, x.solo, x.block, x.attempts, x.error, x."group", pg_catalog.clock_timestamp(),
       coalesce((select b.errors from ${names.blocked} b where b.relay = ${relay} and b.stream = x.stream
           and b.key = x.key and b.solo = x.solo and b.position = x.position), '[]')
         || pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object('at', pg_catalog.clock_timestamp(), 'error', x.error)), ${from}
     from c, pg_catalog.jsonb_to_recordset(${rows}) as x (position bigint, attempts integer, error text, "group" text, block boolean,
         stream text, key text, solo bigint),
       lateral (select * from ${names.all_message} a where a.position = x.position limit 1) m
     on conflict (relay, position) do update set state = 'dead', command = null, blocks = excluded.blocks,
       attempts = d.attempts + excluded.attempts, last_error = excluded.last_error, error_group = excluded.error_group, grouped_at = excluded.grouped_at,
       errors = pg_catalog.jsonb_path_query_array(d.errors || excluded.errors, '$[last - ${KEPT_ERRORS - 1} to last]'),
       died_at = pg_catalog.clock_timestamp())`;
}

/** Bit n stands for lane n, as a signed 64-bit number. */
export function laneMask(lanes: readonly number[]): string {
  if (lanes.length === 64) return "-1";
  let mask = 0n;
  for (const lane of lanes) mask |= 1n << BigInt(lane);
  return String(BigInt.asIntN(64, mask));
}
