import type pg from "pg";
import { createOutbox, type HandledMessage } from "txbox";
import type { PostgresStore } from "txbox/postgres";
import { inTransaction } from "./database.ts";
import type { OrderEvents, PaymentEvents } from "./events.ts";

export interface NewOrder {
  /** Chosen by the client, so that placing it again places nothing new. */
  id: string;
  customer_id: string;
  items: { price: number; quantity: number }[];
}

export interface Order {
  id: string;
  customer_id: string;
  total_amount: number;
  status: "new" | "paid";
}

type Handled = HandledMessage<"payment_completed", PaymentEvents["payment_completed"]>;

export const ORDERS_TABLE = `create table if not exists orders (
  number bigint generated always as identity,
  id text primary key,
  customer_id text not null,
  total_amount int not null,
  status text not null default 'new',
  payments int not null default 0,
  cause text
)`;

export class Orders {
  readonly #pool: pg.Pool;
  readonly #outbox;

  constructor(pool: pg.Pool, store: PostgresStore) {
    this.#pool = pool;
    this.#outbox = createOutbox<OrderEvents>({ store });
  }

  /** The order and its message are written in one transaction: both, or neither. No broker is needed for that. */
  async place(order: NewOrder): Promise<{ order: Order; created: boolean }> {
    const { id, customer_id } = order;
    const total_amount = order.items.reduce((sum, { price, quantity }) => sum + price * quantity, 0);
    return inTransaction(this.#pool, async (tx) => {
      const { rows } = await tx.query<Order>(
        `insert into orders (id, customer_id, total_amount) values ($1, $2, $3) on conflict (id) do nothing
         returning id, customer_id, total_amount, status`,
        [id, customer_id, total_amount],
      );
      const [placed] = rows;
      if (placed === undefined) return { order: await find(tx, id), created: false };
      await this.#outbox.enqueue(tx, {
        stream: "orders",
        type: "order_created",
        key: customer_id, // the orders of a customer arrive in order
        aggregateType: "order",
        aggregateId: id,
        payload: { order_id: id, customer_id, total_amount },
      });
      return { order: placed, created: true };
    });
  }

  async find(id: string): Promise<Order | undefined> {
    const { rows } = await this.#pool.query<Order>(SELECT, [id]);
    return rows[0];
  }

  /** In the transaction of the inbox: its receipt and this change are one. */
  async paid(tx: pg.PoolClient, { payload, headers }: Handled): Promise<void> {
    const cause = (headers.causationPath ?? []).map((step) => step.join(":")).join(" > ");
    await tx.query("update orders set status = 'paid', payments = payments + 1, cause = $2 where id = $1", [
      payload.order_id,
      cause,
    ]);
  }
}

const SELECT = "select id, customer_id, total_amount, status from orders where id = $1";

async function find(tx: pg.PoolClient, id: string): Promise<Order> {
  const { rows } = await tx.query<Order>(SELECT, [id]);
  return rows[0]!;
}
