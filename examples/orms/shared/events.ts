export interface Events {
  order_created: { orderId: string; total: number };
  order_paid: { orderId: string };
}

/** The tables of every shop; an application has its own way to make them. */
export const TABLES = `
  create table "order" (id text primary key, total int not null);
  create table payment (order_id text primary key, amount int not null)`;
