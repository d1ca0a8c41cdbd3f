import type { NewOrder } from "./order-module.ts";

const CUSTOMERS = ["ada", "ben", "cleo", "dora"];

/** Dora's third order is in a currency that the payment module does not know. */
export const POISON: { readonly customer: string; readonly nth: number; readonly currency: string } = {
  customer: "dora",
  nth: 3,
  currency: "SEK",
};

/** The customers order in turn. */
export function demoOrders(count: number): readonly [NewOrder, ...NewOrder[]] {
  const [first, ...rest] = Array.from({ length: count }, (_, i) => orderOf(i));
  if (first === undefined) throw new Error("The demo needs at least one order");
  return [first, ...rest];
}

function orderOf(i: number): NewOrder {
  const customer = CUSTOMERS[i % CUSTOMERS.length] ?? POISON.customer;
  const nth = Math.floor(i / CUSTOMERS.length) + 1;
  const poison = customer === POISON.customer && nth === POISON.nth;
  const currency = poison ? POISON.currency : i % 3 === 0 ? "USD" : "EUR";
  return { orderId: `order-${i + 1}`, customer, amount: `${10 + i}.50`, currency };
}
