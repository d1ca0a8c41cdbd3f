import pg from "pg";
import { uuidv7 } from "../../src/core/uuid.ts";
import { init } from "../../src/stores/postgres/migrations/0001-init.ts";
import { databaseOf } from "../../src/stores/postgres/postgres-client.ts";
import { createMigrator } from "../../src/stores/postgres/postgres-migrator.ts";
import { postgresNames } from "../../src/stores/postgres/postgres-names.ts";

/** What 0.1 does to a database, in its own statements: processes of it go on while the schema becomes a newer one. */

export async function migrateAs01(pool: pg.Pool): Promise<void> {
  const names = postgresNames({ schema: "txbox", tablePrefix: "" });
  await createMigrator({ database: databaseOf(pool), names, migrations: [init] }).migrate();
}

const RELAY = "old";

/** A log with history: messages, dead letters, keys that wait with what is parked behind them, receipts. */
export async function fillAs01(pool: pg.Pool, messages: number): Promise<void> {
  await pool.query(
    `insert into txbox.message (id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload)
     select 'id-' || i, 20, i % 64, 'orders', 'created', 'k-' || i % 64, 'order', 'a-' || i % 5000,
       case when i % 2 = 0 then 'c-' || i % 7000 end, '{"schemaVersion":1}', json_build_object('n', i) from generate_series(1, $1::bigint) i`,
    [messages],
  );
  await pool.query("insert into txbox.relay (name) values ($1)", [RELAY]);
  await pool.query(`with c as (insert into txbox.cursor (relay, owner, prev, epoch, seq, lease_until)
      values ('${RELAY}', 'old-1', '1:1:', 1, 1, clock_timestamp() + interval '1 hour') returning id)
    insert into txbox.lane (relay, lane, cursor_id) select '${RELAY}', lane, c.id from c, generate_series(0, 63) lane`);
  await pool.query(`insert into txbox.blocked (relay, lane, stream, key, position, attempts, next_at, last_error)
    select '${RELAY}', i, 'orders', 'k-' || i, i, 3, clock_timestamp() + interval '1 day', 'refused' from generate_series(1, 5) i`);
  await pool.query(`insert into txbox.parked (relay, position, lane, stream, key)
    select '${RELAY}', position, lane, stream, key from txbox.message where position <= 1000 and key in (select key from txbox.blocked)`);
  await pool.query(`insert into txbox.dead (relay, position, lane, solo, attempts, last_error, errors, created_at, size, id, stream, type, key, payload)
    select '${RELAY}', position, lane, 0, 10, 'no', '[]', created_at, size, id, stream, type, key, payload from txbox.message
    where position between 1001 and 1100`);
  await pool.query(`insert into txbox.receipt (bucket, consumer, message_id, type, status)
    select '0001-01-01', 'payments', 'm-' || i, 'created', 'processed' from generate_series(1, 1000) i`);
  await pool.query("analyze txbox.message");
}

const CALL = `call "txbox"."enqueue"($1, $2, $3, $4, $5, $6, $7, $8, $9, null, $10, null)`;
const MANY = `insert into "txbox"."message" (id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body)
  select id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers::json, payload::json, body::bytea
  from unnest($1::text::text[], $2::text::integer[], $3::text::smallint[], $4::text::text[], $5::text::text[], $6::text::text[],
    $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[])
    with ordinality as i(id, size, lane, stream, type, key, aggregate_type, aggregate_id, correlation_id, headers, payload, body, ord) order by ord`;

export interface OldWriter {
  /** Ids whose transaction committed. */
  readonly committed: string[];
  /** The longest transaction, in ms. */
  readonly longestMs: number;
  readonly errors: unknown[];
  stop(): Promise<void>;
}

/** Enqueues as 0.1 does, by its procedure and by its INSERT of many in turn, one transaction after another. */
export function startWriterAs01(url: string, pauseMs = 2): OldWriter {
  const client = new pg.Client({ connectionString: url });
  const committed: string[] = [];
  const errors: unknown[] = [];
  let longestMs = 0;
  const stop = new AbortController();
  const running = (async () => {
    await client.connect();
    for (let turn = 0; !stop.signal.aborted; turn++) {
      const ids = turn % 2 === 0 ? [uuidv7()] : [uuidv7(), uuidv7()];
      const started = performance.now();
      try {
        await client.query("begin");
        await (ids.length === 1
          ? client.query(CALL, [ids[0], 20, 7, "orders", "created", "k-7", "order", "a-7", null, '{"n":0}'])
          : client.query(MANY, manyValues(ids)));
        await client.query("commit");
        committed.push(...ids);
      } catch (error) {
        errors.push(error);
        await client.query("rollback").catch(() => undefined);
      }
      longestMs = Math.max(longestMs, performance.now() - started);
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    await client.end();
  })();
  return {
    committed,
    errors,
    get longestMs() {
      return longestMs;
    },
    stop() {
      stop.abort();
      return running;
    },
  };
}

function manyValues(ids: readonly string[]): string[] {
  const all = (value: string) => `{${ids.map(() => value).join(",")}}`;
  const [n, none] = [all("20"), all("NULL")];
  return [
    `{${ids.join(",")}}`,
    n,
    all("7"),
    all("orders"),
    all("created"),
    all("k-7"),
    all("order"),
    all("b-7"),
    all("c-7"),
  ].concat(none, `{${ids.map(() => String.raw`"{\"n\":1}"`).join(",")}}`, none);
}

export interface OldRelay {
  /** Ids in the order in which they went out. */
  readonly published: string[];
  readonly errors: unknown[];
  /** Returns when nothing is left. */
  drain(): Promise<void>;
}

const NEWS = `select txbox.no_news_until('', pg_snapshot_xmax(prev), array(select pg_snapshot_xip(prev))) is null
  from txbox.cursor where relay = '${RELAY}'`;
const OPEN = `update txbox.cursor c set cur = pg_current_snapshot(), seq = seq + 1, done = 0, stamp = pg_current_xact_id() where relay = '${RELAY}' and cur is null`;
const CURSOR = `select done, prev, cur from txbox.cursor where relay = '${RELAY}'`;
const PAGE = `select position, id from txbox.message where position > $1::bigint and not pg_visible_in_snapshot(xid, $2::pg_snapshot)
  and pg_visible_in_snapshot(xid, $3::pg_snapshot) order by position limit 5000`;
const SETTLE = `select * from txbox.cursor c, txbox.settle('${RELAY}', interval '1 hour', c.id, c.epoch, c.seq, $1::bigint, c.done, -1::bigint,
  $2::integer, c.prev, c.cur) where c.relay = '${RELAY}'`;
const CLOSE = `update txbox.cursor set prev = cur, cur = null, done = 0, seq = seq + 1, stamp = pg_current_xact_id() where relay = '${RELAY}'`;

/** Windows, pages and settles with the routines and tables of 0.1. Owner of all lanes. */
export function startRelayAs01(url: string): OldRelay {
  const client = new pg.Client({ connectionString: url });
  const published: string[] = [];
  const errors: unknown[] = [];
  let draining = false;
  const running = (async () => {
    await client.connect();
    for (;;) {
      const wasDraining = draining;
      if ((await client.query<[boolean]>({ text: NEWS, rowMode: "array" })).rows[0]?.[0] !== true) {
        if (wasDraining) break;
        await new Promise((resolve) => setTimeout(resolve, 20));
        continue;
      }
      await client.query(OPEN);
      for (;;) {
        const cursor = await client.query<[string, string, string]>({ text: CURSOR, rowMode: "array" });
        const { rows } = await client.query<[string, string]>({
          text: PAGE,
          values: cursor.rows[0]!,
          rowMode: "array",
        });
        const last = rows.at(-1);
        if (last === undefined) break;
        published.push(...rows.map(([, id]) => id));
        const settled = await client.query(SETTLE, [last[0], rows.length]);
        if (settled.rowCount !== 1) throw new Error("a settle of the old relay was refused");
      }
      await client.query(CLOSE);
    }
  })()
    .catch((error: unknown) => void errors.push(error))
    .finally(() => void client.end());
  return {
    published,
    errors,
    drain() {
      draining = true;
      return running;
    },
  };
}
