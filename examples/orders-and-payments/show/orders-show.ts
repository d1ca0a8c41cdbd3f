import { setTimeout as sleep } from "node:timers/promises";
import { acceptedRate } from "./accepted-rate.ts";
import { Books, isGood, type Verdict } from "./books.ts";
import { Chaos } from "./chaos.ts";
import { Customers } from "./customers.ts";
import { Fleet } from "./fleet.ts";
import type { ShowOptions } from "./options.ts";

const CUSTOMERS = 12;
const QUIET_MS = 120_000;

export interface OrdersResult extends Verdict {
  passed: boolean;
  broker: string;
  chaos: boolean;
  seed: number;
  seconds: number;
  /** Requests that failed and were sent again. */
  repeatedRequests: number;
  /** Of these, requests whose order had been placed though the answer never came. */
  answersLost: number;
  unanswered: number;
  kills: Record<string, number>;
  /** Orders per second as fast as they are answered. */
  usualRate?: number;
  brokerDownRate?: number;
  acceptedRateRatio?: number;
  /** From the last order to the last payment. */
  quietSeconds: number;
  crashes: string[];
}

/** Places orders, breaks things if asked to, waits for quiet and compares the books. */
export async function showOrders(options: ShowOptions, say: (text: string) => void): Promise<OrdersResult> {
  const { broker, chaos, seconds, rate, seed } = options;
  say(`Starting PostgreSQL, ${broker}, an order service, a payment service and a relay for each.`);
  await using fleet = await Fleet.start(broker, options.verbose);
  await using books = new Books(fleet.databases);
  const customers = new Customers(fleet.url, CUSTOMERS);
  const breaking = new Chaos(fleet, seed, say);
  const rates = chaos ? await measureRates(fleet, customers, books, Math.min(5, seconds), say) : {};

  say(`${CUSTOMERS} customers place ${rate} orders per second for ${seconds} s${chaos ? ` (seed ${seed})` : ""}.`);
  const placing = AbortSignal.timeout(seconds * 1000);
  await Promise.all([customers.place({ signal: placing, rate }), chaos ? breaking.run(placing) : undefined]);
  const stoppedAt = performance.now();
  say("No more orders. Waiting for the payments.");
  await quiet(books, say);
  const quietSeconds = (performance.now() - stoppedAt) / 1000;
  // A double may come late.
  await sleep(1500);
  const verdict = await books.compare(customers.accepted);
  const unanswered = customers.unanswered.size;
  const { crashes } = fleet;
  if (options.keep) await untilStopped(fleet.url, say);
  return {
    passed: isGood(verdict) && unanswered === 0 && crashes.length === 0,
    broker,
    chaos,
    seed,
    seconds,
    ...verdict,
    repeatedRequests: customers.repeated,
    answersLost: customers.answersLost,
    unanswered,
    kills: {
      ...Object.fromEntries(fleet.processes.map(({ name, kills }) => [name, kills])),
      broker: breaking.brokerKills,
    },
    ...rates,
    quietSeconds: rounded(quietSeconds),
    crashes,
  };
}

type Rates = Required<Pick<OrdersResult, "usualRate" | "brokerDownRate" | "acceptedRateRatio">>;

async function measureRates(
  fleet: Fleet,
  customers: Customers,
  books: Books,
  seconds: number,
  say: (text: string) => void,
): Promise<Rates> {
  say(`How many orders are taken: ${seconds} s as usual, then ${seconds} s with the broker killed.`);
  await acceptedRate(customers, Math.min(2, seconds));
  const usualRate = await acceptedRate(customers, seconds);
  await quiet(books, say);
  await fleet.broker.kill();
  const brokerDownRate = await acceptedRate(customers, seconds);
  await fleet.broker.restart();
  say(`${Math.round(usualRate)} per second as usual, ${Math.round(brokerDownRate)} per second without the broker.`);
  return {
    usualRate: rounded(usualRate),
    brokerDownRate: rounded(brokerDownRate),
    acceptedRateRatio: rounded(brokerDownRate / usualRate),
  };
}

/** Returns when every order is paid, or when that has taken too long. */
async function quiet(books: Books, say: (text: string) => void): Promise<void> {
  const endsAt = performance.now() + QUIET_MS;
  let said = performance.now();
  while (performance.now() < endsAt) {
    const { orders, payments, paid } = await books.counts();
    if (orders === payments && orders === paid) return;
    if (performance.now() - said > 5000) {
      said = performance.now();
      say(`${orders} orders, ${payments} payments, ${paid} orders known as paid`);
    }
    await sleep(200);
  }
  say(`Not quiet after ${QUIET_MS / 1000} s.`);
}

async function untilStopped(url: string, say: (text: string) => void): Promise<void> {
  say(`The order service listens on ${url}. Ctrl-C ends everything. Try:`);
  say(`curl -d '{"customer_id":"me","items":[{"price":100,"quantity":2}]}' ${url}/orders`);
  const idle = setInterval(() => undefined, 60_000);
  await new Promise((resolve) => {
    process.once("SIGINT", resolve);
    process.once("SIGTERM", resolve);
  });
  clearInterval(idle);
}

function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
