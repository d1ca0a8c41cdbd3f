import type { PGlite } from "@electric-sql/pglite";

export interface Reconciliation {
  readonly orders: number;
  readonly payments: number;
  readonly unpaidOrders: number;
  readonly ordersPaidMoreThanOnce: number;
  readonly paymentsWithoutOrder: number;
  readonly wrongAmounts: number;
  /** Payments of a customer that came before the payment of an earlier order. */
  readonly paymentsOutOfOrder: number;
}

/** Asks the tables of the two modules, and nothing of txbox. */
export async function reconcile(db: PGlite): Promise<Reconciliation> {
  const { rows } = await db.query<Reconciliation>(`
    with pair as (select o.id, o.customer, o.n, o.amount as asked, p.n as paid_n, p.amount as paid
      from orders.orders o left join payments.payments p on p.order_id = o.id)
    select (select count(*) from orders.orders)::int as "orders",
      (select count(*) from payments.payments)::int as "payments",
      (select count(*) from pair where paid_n is null)::int as "unpaidOrders",
      (select count(*) from (select 1 from pair group by id having count(paid_n) > 1) x)::int as "ordersPaidMoreThanOnce",
      (select count(*) from payments.payments p where not exists (select 1 from orders.orders o where o.id = p.order_id))::int as "paymentsWithoutOrder",
      (select count(*) from pair where paid <> asked)::int as "wrongAmounts",
      (select count(*) from (select paid_n < max(paid_n) over (partition by customer order by n rows between unbounded preceding and 1 preceding) as late
        from pair where paid_n is not null) x where late)::int as "paymentsOutOfOrder"`);
  const [found] = rows;
  if (found === undefined) throw new Error("The reconciliation found nothing");
  return found;
}

export function isPaidOnce(found: Reconciliation): boolean {
  const { orders, payments, ...faults } = found;
  return orders > 0 && orders === payments && Object.values(faults).every((n) => n === 0);
}
