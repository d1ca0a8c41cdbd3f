import type { PGlite, Transaction } from "@electric-sql/pglite";
import type { Store } from "../../core/contracts.ts";
import { createOutbox } from "../../outbox/outbox.ts";

/** What the order module tells the others. */
export interface OrderEvents {
  order_placed: { orderId: string; customer: string; amount: string; currency: string };
}

export interface NewOrder {
  readonly orderId: string;
  readonly customer: string;
  readonly amount: string;
  readonly currency: string;
}

export interface OrderModule {
  /** The order and its message in one transaction. */
  place(order: NewOrder): Promise<void>;
  /** The same, but the transaction fails after both were written. */
  placeAndFail(order: NewOrder): Promise<void>;
}

export async function createOrderModule(db: PGlite, store: Store): Promise<OrderModule> {
  await db.exec(`
    create schema orders;
    create table orders.orders (
      n integer generated always as identity, id text primary key, customer text not null,
      amount numeric(10, 2) not null, currency text not null);`);
  const outbox = createOutbox<OrderEvents, Transaction>({ store });

  async function write(tx: Transaction, order: NewOrder): Promise<void> {
    const { orderId, customer, amount, currency } = order;
    await tx.query("insert into orders.orders (id, customer, amount, currency) values ($1, $2, $3, $4)", [
      orderId,
      customer,
      amount,
      currency,
    ]);
    await outbox.enqueue(tx, {
      stream: "orders",
      type: "order_placed",
      key: customer,
      aggregateType: "order",
      aggregateId: orderId,
      payload: { orderId, customer, amount, currency },
    });
  }

  return {
    place: (order) => db.transaction((tx) => write(tx, order)),
    async placeAndFail(order) {
      const outOfStock = new Error("out of stock");
      await db
        .transaction(async (tx) => {
          await write(tx, order);
          throw outOfStock;
        })
        .catch((error: unknown) => {
          if (error !== outOfStock) throw error;
        });
    },
  };
}
