import pg from "pg";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { Databases } from "./fleet.ts";

export interface Verdict {
  orders: number;
  payments: number;
  /** Orders of which the order service has heard that they are paid. */
  paid: number;
  /** Accepted but not there, or there but not paid for. */
  lost: number;
  /** Payments too many, and news of payments that took effect more than once. */
  doubled: number;
  /** Payments of orders that do not exist. */
  phantoms: number;
  /** Payments of a customer that were not made in the order of the orders. */
  orderBreaks: number;
  /** Paid orders that do not know what caused it. */
  causeless: number;
  /** Dead letters of both relays. */
  dead: number;
}

interface OrderRow {
  number: string;
  id: string;
  status: string;
  payments: number;
  cause: string | null;
}

interface PaymentRow {
  order_id: string;
  customer_id: string;
}

/** Reads both databases and compares. */
export class Books implements AsyncDisposable {
  readonly #orders: pg.Pool;
  readonly #payments: pg.Pool;

  constructor(databases: Databases) {
    this.#orders = new pg.Pool({ connectionString: databases.orders, max: 2 });
    this.#payments = new pg.Pool({ connectionString: databases.payments, max: 2 });
    for (const pool of [this.#orders, this.#payments]) pool.on("error", () => undefined);
  }

  async counts(): Promise<{ orders: number; payments: number; paid: number }> {
    const { rows } = await this.#orders.query<{ orders: number; paid: number }>(
      "select count(*)::int as orders, (count(*) filter (where status = 'paid'))::int as paid from orders",
    );
    const { rows: paying } = await this.#payments.query<{ payments: number }>(
      "select count(*)::int as payments from payments",
    );
    return { ...rows[0]!, ...paying[0]! };
  }

  async compare(accepted: ReadonlySet<string>): Promise<Verdict> {
    const { rows: orders } = await this.#orders.query<OrderRow>(
      "select number, id, status, payments, cause from orders order by number",
    );
    const { rows: payments } = await this.#payments.query<PaymentRow>(
      "select order_id, customer_id from payments order by number",
    );
    const known = new Map(orders.map((order) => [order.id, order]));
    const paidFor = new Map<string, number>();
    for (const { order_id } of payments) paidFor.set(order_id, (paidFor.get(order_id) ?? 0) + 1);
    const missing = [...accepted].filter((id) => !known.has(id)).length;
    const paid = orders.filter(({ status }) => status === "paid");
    return {
      orders: orders.length,
      payments: payments.length,
      paid: paid.length,
      lost: missing + orders.filter(({ id }) => !paidFor.has(id)).length,
      doubled: tooMany(paidFor.values()) + tooMany(orders.map((order) => order.payments)),
      phantoms: payments.filter(({ order_id }) => !known.has(order_id)).length,
      orderBreaks: orderBreaks(payments, known),
      causeless: paid.filter(({ cause }) => cause !== "payments:order_created").length,
      dead: (await deadLetters(this.#orders)) + (await deadLetters(this.#payments)),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#orders.end(), this.#payments.end()]);
  }
}

export function isGood({ orders, payments, paid, ...faults }: Verdict): boolean {
  return orders > 0 && orders === payments && orders === paid && Object.values(faults).every((count) => count === 0);
}

function tooMany(counts: Iterable<number>): number {
  let extra = 0;
  for (const count of counts) extra += Math.max(0, count - 1);
  return extra;
}

/** Counted once for each payment that was made after one for a later order of the customer. */
function orderBreaks(payments: readonly PaymentRow[], orders: ReadonlyMap<string, OrderRow>): number {
  const last = new Map<string, bigint>();
  let breaks = 0;
  for (const { order_id, customer_id } of payments) {
    const number = BigInt(orders.get(order_id)?.number ?? 0);
    if (number < (last.get(customer_id) ?? 0n)) breaks++;
    else last.set(customer_id, number);
  }
  return breaks;
}

async function deadLetters(pool: pg.Pool): Promise<number> {
  return (await createPostgresStore({ client: pool }).admin.dead({ state: "dead", limit: 1000 })).length;
}
