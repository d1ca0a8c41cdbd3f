export interface Events {
  order_created: { orderId: string; total: number };
  order_paid: { orderId: string };
}

export const created = (orderId: string, total: number) =>
  ({ stream: "orders", type: "order_created", key: orderId, payload: { orderId, total } }) as const;

export const paid = (orderId: string) =>
  ({ stream: "payments", type: "order_paid", key: orderId, payload: { orderId } }) as const;

/** The tables of every shop; an application has its own way to make them. */
export const TABLES = `
  create table "order" (id text primary key, total int not null);
  create table payment (order_id text primary key, amount int not null)`;
