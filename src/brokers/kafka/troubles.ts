import { backoffMs } from "../../core/backoff.ts";
import type { Clock } from "../../core/contracts.ts";
import { TxboxError } from "../../core/errors.ts";
import { explain } from "./kafka-errors.ts";

export interface TroubleListener {
  outage(error: unknown, attempt: number, delayMs: number): void;
  /** Nothing is in trouble any more. */
  recovered(): void;
}

const BACKOFF = { baseMs: 100, maxMs: 5000 };
const LEAST_MS = 20;

/** What does not work just now, by name: each is told of with waits of its own, and all being well is told once. */
export class Troubles {
  readonly #listener: TroubleListener;
  readonly #clock: Clock;
  readonly #known = new Map<string, { attempt: number; nextAt: number }>();

  constructor(listener: TroubleListener, clock: Clock) {
    this.#listener = listener;
    this.#clock = clock;
  }

  /** Tells of it; how long to wait before the next try. */
  report(name: string, error: unknown): number {
    const attempt = (this.#known.get(name)?.attempt ?? 0) + 1;
    const delayMs = Math.max(LEAST_MS, backoffMs(attempt, BACKOFF));
    this.#known.set(name, { attempt, nextAt: this.#clock.monotonic() + delayMs });
    this.#listener.outage(error instanceof TxboxError ? error : explain(error), attempt, delayMs);
    return delayMs;
  }

  /** The same for what is looked at again and again: tells of it when its wait is over. */
  remind(name: string, error: () => unknown): void {
    if (this.#clock.monotonic() >= (this.#known.get(name)?.nextAt ?? 0)) this.report(name, error());
  }

  /** Tells of it and waits. */
  async pause(name: string, error: unknown, until: AbortSignal): Promise<void> {
    if (!until.aborted) await this.#clock.sleep(this.report(name, error), until);
  }

  over(name: string): void {
    if (this.#known.delete(name) && this.#known.size === 0) this.#listener.recovered();
  }

  /** All others are not ours any more. */
  keepOnly(names: ReadonlySet<string>): void {
    for (const name of this.#known.keys()) if (!names.has(name)) this.over(name);
  }
}
