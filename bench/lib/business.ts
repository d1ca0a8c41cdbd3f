import { randomUUID } from "node:crypto";
import type { ClientBase } from "pg";
import { withClient } from "./with-client.ts";

/** The application's own table, the same for everyone. */
const CREATE = `create table if not exists orders (
  id uuid primary key, customer text not null, total integer not null, created_at timestamptz not null default now()
)`;

export async function createBusinessTable(url: string): Promise<void> {
  await withClient(url, (client) => client.query(CREATE));
}

export async function insertOrder(client: ClientBase, seq: number): Promise<void> {
  await client.query("insert into orders (id, customer, total) values ($1, $2, $3)", [
    randomUUID(),
    `customer-${seq % 1000}`,
    100 + (seq % 900),
  ]);
}

export async function countRows(url: string, table: string): Promise<number> {
  return withClient(url, async (client) => {
    const { rows } = await client.query<{ n: string }>(`select count(*) as n from ${table}`);
    return Number(rows[0]?.n);
  });
}
