import { randomUUID } from "node:crypto";
import pg from "pg";
import type { ClientBase } from "pg";
import { countRows, createBusinessTable, insertOrder } from "../lib/business.ts";
import type { Contestant } from "../lib/contestant.ts";
import { order, orderSql } from "../lib/payload.ts";
import { shaped, shapedSql } from "../lib/shapes.ts";
import { withClient } from "../lib/with-client.ts";

const CREATE = `
create table outbox (
  id uuid primary key,
  stream text not null,
  type text not null,
  key text,
  aggregate_type text,
  aggregate_id text,
  payload json not null,
  headers json not null,
  status text not null default 'pending',
  attempts integer not null default 0,
  created_at timestamptz not null default now()
);
create index on outbox (created_at) where status = 'pending';
create table receipt (
  consumer text not null,
  message_id text not null,
  type text not null,
  received_at timestamptz not null default now(),
  primary key (consumer, message_id)
);`;

const COLUMNS = ["id", "stream", "type", "key", "aggregate_type", "aggregate_id", "payload", "headers"];

/** What a careful team writes by itself: an outbox table, a receipt table, plain INSERTs. */
export function createHandWritten(url: string, { connections = 8 } = {}): Contestant {
  const pool = new pg.Pool({ connectionString: url, max: connections });
  return {
    async setup() {
      await withClient(url, (client) => client.query(CREATE));
      await createBusinessTable(url);
    },
    async enqueue(client: ClientBase, seqs, shape) {
      const values = seqs.flatMap((seq) => {
        const { key, aggregateId, correlationId } = shaped(shape);
        const payload = JSON.stringify(order(seq));
        const headers = JSON.stringify({ correlationId, schemaVersion: 1 });
        return [randomUUID(), "orders", "order_created", key, "order", aggregateId, payload, headers];
      });
      await client.query(insertStatement(seqs.length), values);
    },
    async age(messages, shape) {
      const [key, aggregate, correlation] = shapedSql(shape, "n");
      await withClient(url, async (client) => {
        await client.query(
          `insert into outbox (${COLUMNS.join(", ")}) select gen_random_uuid(), 'orders', 'order_created', ${key}, 'order', ${aggregate},
             ${orderSql("n")}, json_strip_nulls(json_build_object('correlationId', ${correlation}, 'schemaVersion', 1))
           from generate_series(1, $1::bigint) n`,
          [messages],
        );
        await client.query("vacuum analyze outbox");
      });
    },
    stored: () => countRows(url, "outbox"),
    async receive(seq) {
      const client = await pool.connect();
      try {
        await client.query("begin");
        if (await insertReceipt(client, "payments", randomUUID(), "order_created")) await insertOrder(client, seq);
        await client.query("commit");
      } finally {
        client.release();
      }
    },
    close: () => pool.end(),
  };
}

/** False when the message has been received before. */
export async function insertReceipt(client: ClientBase, consumer: string, id: string, type: string): Promise<boolean> {
  const { rowCount } = await client.query(
    `insert into receipt (consumer, message_id, type) values ($1, $2, $3)
     on conflict do nothing returning 1`,
    [consumer, id, type],
  );
  return rowCount === 1;
}

const statements = new Map<number, string>();

function insertStatement(rows: number): string {
  const known = statements.get(rows);
  if (known !== undefined) return known;
  const tuples = Array.from({ length: rows }, (_, row) => {
    const places = COLUMNS.map((_column, column) => `$${row * COLUMNS.length + column + 1}`);
    return `(${places.join(", ")})`;
  });
  const sql = `insert into outbox (${COLUMNS.join(", ")}) values ${tuples.join(", ")}`;
  statements.set(rows, sql);
  return sql;
}
