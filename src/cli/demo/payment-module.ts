import type { PGlite, Transaction } from "@electric-sql/pglite";
import type { Subscriber } from "../../core/contracts.ts";
import { createInbox } from "../../inbox/inbox.ts";
import type { PostgresStore } from "../../stores/postgres/postgres-store.ts";
import type { OrderEvents } from "./order-module.ts";

export interface PaymentModule {
  /** How often a handler was run, and how many of those runs failed. */
  readonly runs: { readonly all: number; readonly failed: number };
  listen(subscriber: Subscriber): Promise<void>;
  learnRate(currency: string, toEur: string): Promise<void>;
  stop(): Promise<void>;
}

export async function createPaymentModule(db: PGlite, store: PostgresStore<Transaction>): Promise<PaymentModule> {
  // No unique order_id on purpose: nothing but the inbox keeps an order from being paid twice.
  await db.exec(`
    create schema payments;
    create table payments.rates (currency text primary key, to_eur numeric not null);
    insert into payments.rates values ('EUR', 1), ('USD', 0.9);
    create table payments.payments (
      n integer generated always as identity, order_id text not null, amount numeric(10, 2) not null, eur numeric(10, 2) not null);`);
  const runs = { all: 0, failed: 0 };
  const inbox = createInbox<OrderEvents, Transaction>({ store, consumer: "payments" });
  inbox.on("order_placed", async (tx, { payload: { orderId, amount, currency } }) => {
    runs.all++;
    const { rows } = await tx.query<{ to_eur: string }>("select to_eur from payments.rates where currency = $1", [
      currency,
    ]);
    const [rate] = rows;
    if (rate === undefined) {
      runs.failed++;
      throw new Error(`No exchange rate for ${currency}`);
    }
    await tx.query(
      "insert into payments.payments (order_id, amount, eur) values ($1, $2::numeric, $2::numeric * $3::numeric)",
      [orderId, amount, rate.to_eur],
    );
  });
  return {
    runs,
    listen: (subscriber) => inbox.start(subscriber),
    async learnRate(currency, toEur) {
      await db.query("insert into payments.rates values ($1, $2)", [currency, toEur]);
    },
    stop: () => inbox.stop(),
  };
}
