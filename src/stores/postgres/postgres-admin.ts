import type {
  Admin,
  DeadLetter,
  DeadQuery,
  MessageInfo,
  MessageQuery,
  MessageStatus,
  RewindTarget,
} from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { RowMessage, messageColumns } from "./log-message.ts";
import type { Row, SqlRunner } from "./postgres-client.ts";
import { BEGINNING, DURABLE, SOUND } from "./postgres-cursor.ts";
import { restoredCopy } from "./postgres-ownership.ts";
import type { Names } from "./postgres-names.ts";
import { relayFigures } from "./relay-figures.ts";

const DEFAULT_LIMIT = 100;

/** Read model and admin commands over the tables. */
export function createAdmin({ sql, names }: { sql: SqlRunner; names: Names }): Admin {
  return {
    find: (query) => find(sql, names, query),
    relays: () => relayFigures(sql, names),
    pause: (relay) => setPaused(sql, names, relay, true),
    resume: (relay) => setPaused(sql, names, relay, false),
    rewind: (relay, target) => rewind(sql, names, relay, target),
    async drop(relay) {
      const rows = await sql.query(`delete from ${names.relay} where name = $1::text returning name`, [relay]);
      if (rows.length === 0) throw noSuchRelay(relay);
    },
    dead: (query) => dead(sql, names, query),
    requeue: (query) => command(sql, names, query, "requeue"),
    discard: (query) => command(sql, names, query, "discard"),
  };
}

/** Builds `where` clauses with text parameters. */
class Conditions {
  readonly params: string[] = [];
  readonly #parts: string[] = [];

  add(value: string | undefined, sql: (parameter: string) => string): this {
    if (value !== undefined) this.#parts.push(sql(`$${this.params.push(value)}::text`));
    return this;
  }

  get where(): string {
    return this.#parts.length === 0 ? "" : `where ${this.#parts.join(" and ")}`;
  }
}

async function find(sql: SqlRunner, names: Names, query: MessageQuery): Promise<MessageInfo[]> {
  const c = new Conditions()
    .add(query.id, (p) => `id = ${p}`)
    .add(query.stream, (p) => `stream = ${p}`)
    .add(query.key, (p) => `key = ${p}`)
    .add(query.aggregateType, (p) => `aggregate_type = ${p}`)
    .add(query.aggregateId, (p) => `aggregate_id = ${p}`)
    // A message without a correlation of its own is the first of its chain.
    .add(query.correlationId, (p) => `(correlation_id = ${p} or id = ${p} and correlation_id is null)`)
    .add(query.relay, (p) => `relay = ${p}`);
  const rows = await sql.query(
    `select ${messageColumns()}, relay, status, attempts, last_error, ${epochMs("published_at")}, ${epochMs("deliver_at")}
     from ${names.message_status} ${c.where} order by position nulls last, relay limit ${limitOf(query.limit)}`,
    c.params,
  );
  return rows.map(messageInfo);
}

function messageInfo(row: Row): MessageInfo {
  return {
    ...fieldsOf(row),
    position: row[0] == null ? null : BigInt(row[0]),
    relay: row[14]!,
    status: row[15] as MessageStatus,
    attempts: Number(row[16]),
    lastError: row[17]!,
    publishedAt: dateOf(row[18]!),
    deliverAt: dateOf(row[19]!),
  };
}

function fieldsOf(
  row: Row,
): Omit<MessageInfo, "position" | "relay" | "status" | "attempts" | "lastError" | "publishedAt" | "deliverAt"> {
  const { id, stream, type, key, aggregateType, aggregateId, headers, body, createdAt } = new RowMessage(row);
  return { id, stream, type, key, aggregateType, aggregateId, headers, body, createdAt };
}

function deadConditions(query: DeadQuery): Conditions {
  return new Conditions()
    .add(query.relay, (p) => `relay = ${p}`)
    .add(query.id, (p) => `id = ${p}`)
    .add(query.position === undefined ? undefined : String(query.position), (p) => `position = ${p}::bigint`)
    .add(query.stream, (p) => `stream = ${p}`)
    .add(query.type, (p) => `type = ${p}`)
    .add(query.key, (p) => `key = ${p}`)
    .add(query.state ?? "dead", (p) => `state = ${p}`);
}

async function dead(sql: SqlRunner, names: Names, query: DeadQuery): Promise<DeadLetter[]> {
  const c = deadConditions(query);
  const rows = await sql.query(
    `select ${messageColumns()}, relay, state, command, attempts, last_error, errors, ${epochMs("died_at")}
     from ${names.dead} ${c.where} order by position, relay limit ${limitOf(query.limit)}`,
    c.params,
  );
  return rows.map((row) => ({
    ...fieldsOf(row),
    position: BigInt(row[0]!),
    relay: row[14]!,
    state: row[15] as DeadLetter["state"],
    command: row[16] as DeadLetter["command"],
    attempts: Number(row[17]),
    lastError: row[18]!,
    errors: JSON.parse(row[19]!) as DeadLetter["errors"],
    diedAt: dateOf(row[20]!)!,
  }));
}

async function command(sql: SqlRunner, names: Names, query: DeadQuery, what: "requeue" | "discard"): Promise<number> {
  const c = deadConditions({ ...query, state: "dead" });
  const chosen = `select relay, position from ${names.dead} ${c.where} order by position limit ${limitOf(query.limit, 1_000_000)}`;
  const rows = await sql.query(
    `update ${names.dead} d set command = '${what}', changed_at = clock_timestamp(), changed_by = current_user
     from (${chosen}) x where d.relay = x.relay and d.position = x.position returning 1`,
    c.params,
  );
  return rows.length;
}

async function setPaused(sql: SqlRunner, names: Names, relay: string, paused: boolean): Promise<void> {
  const rows = await sql.query(
    `update ${names.relay} set paused = $2::text::boolean where name = $1::text returning name`,
    [relay, String(paused)],
  );
  if (rows.length === 0) throw noSuchRelay(relay);
}

/**
 * All cursors go to the same point; owners see the new epoch, drop what they had in hand and read on from there. A point
 * in the past is an open window over all that is committed now, done up to there: what commits later comes after it,
 * however low its positions.
 */
async function rewind(sql: SqlRunner, names: Names, relay: string, target: RewindTarget): Promise<void> {
  const params = [relay];
  let done = "0";
  if (typeof target === "object") {
    done =
      "position" in target
        ? `$${params.push(String(target.position - 1n))}::text::bigint`
        : `coalesce((select min(position) - 1 from ${names.message} where created_at >= $${params.push(target.time.toISOString())}::text::timestamptz),
      (select max(position) from ${names.message}), 0)`;
  }
  const prev = target === "now" ? "pg_current_snapshot()" : `'${BEGINNING}'::pg_snapshot`;
  const window =
    typeof target === "object"
      ? "cur = pg_current_snapshot(), fin = '{}', lo = 0, done = target.done"
      : "cur = null, fin = null, lo = null, done = 0";
  // What is read again must not be there twice; what cannot be read again, because its segment is gone or it lies below
  // the floor, stays where it is.
  const again = (row: string) => `${row}.relay = $1::text and ${target !== "now"} and ${row}.position > target.done
       and ${row}.position > target.floor and exists (select 1 from c) and exists (select 1 from ${names.message} m where m.position = ${row}.position)`;
  const keyOf = (row: string) => `${row}.relay = b.relay and ${row}.stream = b.stream and ${row}.solo = b.solo`;
  const rows = await sql.query(
    `with target as materialized (select greatest(${done}, 0) as done,
         (select coalesce(max(floor), 0) from ${names.cursor} where relay = $1::text) as floor),
     c as (update ${names.cursor} c set prev = ${prev}, ${window}, epoch = c.epoch + 1, seq = c.seq + 1, crashes = 0,
         suspect = null, stamp = pg_current_xact_id()
       from target where c.relay = $1::text and ${SOUND} returning ${DURABLE}),
     gone as (delete from ${names.parked} p using target where ${again("p")}),
     redone as (delete from ${names.delivery} v using target where ${again("v")}),
     revived as (update ${names.dead} d set state = 'requeued', command = null, blocks = false, changed_at = clock_timestamp(),
         changed_by = current_user
       from target where d.state = 'dead' and ${again("d")}),
     freed as (delete from ${names.blocked} b using target where b.relay = $1::text and ${target !== "now"} and exists (select 1 from c)
       and not exists (select 1 from ${names.parked} p where ${keyOf("p")} and p.key = b.key and not (${again("p")}))
       and not exists (select 1 from ${names.dead} d where ${keyOf("d")} and case when d.solo = 0 then d.key else '' end = b.key
         and d.state = 'dead' and d.blocks and not (${again("d")})))
     select count(*) from c`,
    params,
  );
  if (rows[0]![0] === "0") {
    await requireRelay(sql, names, relay);
    throw restoredCopy();
  }
}

async function requireRelay(sql: SqlRunner, names: Names, relay: string): Promise<void> {
  const rows = await sql.query(`select 1 from ${names.relay} where name = $1::text`, [relay]);
  if (rows.length === 0) throw noSuchRelay(relay);
}

function limitOf(limit: number | undefined, fallback = DEFAULT_LIMIT): number {
  if (limit === undefined) return fallback;
  if (Number.isInteger(limit) && limit > 0) return limit;
  throw new TxboxError("invalid_option", `limit must be a whole number above 0, got ${String(limit)}`, {
    field: "limit",
    fix: "Give a positive number",
  });
}

/** A whole number has the same form under every setting of the session. */
function epochMs(column: string): string {
  return `floor(date_part('epoch', ${column}) * 1000)::bigint`;
}

function dateOf(ms: string | null): Date | null {
  return ms === null ? null : new Date(Number(ms));
}

function noSuchRelay(relay: string): TxboxError {
  return new TxboxError("not_found", `There is no relay "${relay}"`, {
    field: "relay",
    fix: "List them with `txbox relays list`",
  });
}
