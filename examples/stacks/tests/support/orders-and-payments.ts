import pg from "pg";
import { expect } from "vitest";
import { until } from "../../../../test/harness/index.ts";
import type { Application } from "./application.ts";

const ORDERS = Array.from({ length: 20 }, (_, i) => ({ orderId: `o-${String(i).padStart(2, "0")}`, total: i }));
const PAYMENTS = ORDERS.map(({ orderId, total }) => ({ order_id: orderId, amount: total }));

/** Orders in, each paid once; an order that is refused leaves no message. */
export async function ordersArePaidOnce(app: Application): Promise<void> {
  for (const order of ORDERS) await app.post("/orders", order);
  await expect(app.post("/orders", ORDERS[0]!)).rejects.toThrow(/: 500 /);
  await until(async () => (await app.get<unknown[]>("/payments")).length >= ORDERS.length, {
    what: "payments",
    timeoutMs: 60_000,
  });
  expect(await app.get("/payments")).toEqual(PAYMENTS);
}

/** After a clean stop nothing is owned, nothing waits, and each message was published once. */
export async function nothingIsLeft(databaseUrl: string): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const count = async (sql: string): Promise<number> => Number((await client.query<{ n: string }>(sql)).rows[0]!.n);
    expect(await count("select count(*) as n from txbox.cursor where owner is not null")).toBe(0);
    expect(await count("select count(*) as n from txbox.message_status where status <> 'published'")).toBe(0);
    expect(await count("select count(*) as n from txbox.message_status")).toBe(ORDERS.length);
    expect(await count("select count(*) as n from payments")).toBe(ORDERS.length);
  } finally {
    await client.end();
  }
}
