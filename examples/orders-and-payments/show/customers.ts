import { setTimeout as sleep } from "node:timers/promises";

export interface PlacingOptions {
  signal: AbortSignal;
  /** Orders per second of all customers together; undefined: each places the next as soon as the last is answered. */
  rate?: number;
  /** How long a customer tries to place an order before giving it up. */
  patienceMs?: number;
}

const TRY_MS = 5000;
const PAUSE_MS = 100;

/** Clients of the order service. Each places one order after another, and sends again what was not answered. */
export class Customers {
  /** Orders that were answered with yes. */
  readonly accepted: Set<string> = new Set();
  /** Never answered: they may be there or not. */
  readonly unanswered: Set<string> = new Set();
  /** Requests that failed; their orders were sent again. */
  repeated = 0;
  /** Orders that turned out to have been placed by a request whose answer was lost. */
  answersLost = 0;
  readonly #url: string;
  readonly #counts: number[];

  constructor(url: string, count: number) {
    this.#url = url;
    this.#counts = Array.from({ length: count }, () => 0);
  }

  /** Until the signal aborts; an order that is begun is brought to its end. */
  async place(options: PlacingOptions): Promise<void> {
    await Promise.all(this.#counts.map((_, customer) => this.#placeAll(customer, options)));
  }

  async #placeAll(customer: number, { signal, rate, patienceMs = 120_000 }: PlacingOptions): Promise<void> {
    const everyMs = rate === undefined ? 0 : (1000 * this.#counts.length) / rate;
    let next = performance.now() + (everyMs * customer) / this.#counts.length;
    while (!signal.aborted) {
      const waitMs = next - performance.now();
      if (waitMs > 0) await sleep(waitMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      // Who was held up does not catch up: the rate has a bound.
      next = Math.max(next + everyMs, performance.now());
      await this.#placeOne(customer, patienceMs);
    }
  }

  async #placeOne(customer: number, patienceMs: number): Promise<void> {
    const number = ++this.#counts[customer]!;
    const id = `order-${customer}-${number}`;
    const body = JSON.stringify({
      customer_id: `customer-${customer}`,
      items: [{ price: 100 + number, quantity: 1 + (number % 3) }],
    });
    const endsAt = performance.now() + patienceMs;
    while (performance.now() < endsAt) {
      if (await this.#post(id, body)) {
        this.accepted.add(id);
        return;
      }
      this.repeated++;
      await sleep(PAUSE_MS);
    }
    this.unanswered.add(id);
  }

  async #post(id: string, body: string): Promise<boolean> {
    try {
      const response = await fetch(`${this.#url}/orders`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": id },
        body,
        signal: AbortSignal.timeout(TRY_MS),
      });
      await response.arrayBuffer();
      if (response.status === 200) this.answersLost++;
      return response.ok;
    } catch {
      return false;
    }
  }
}
