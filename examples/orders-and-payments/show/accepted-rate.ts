import type { Customers } from "./customers.ts";

/** Orders accepted per second when every customer places the next one as soon as the last is answered. */
export async function acceptedRate(customers: Customers, seconds: number): Promise<number> {
  const before = customers.accepted.size;
  const startedAt = performance.now();
  await customers.place({ signal: AbortSignal.timeout(seconds * 1000) });
  return (customers.accepted.size - before) / ((performance.now() - startedAt) / 1000);
}
