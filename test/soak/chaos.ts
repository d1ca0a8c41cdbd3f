import { setTimeout as sleep } from "node:timers/promises";
import type { Journal } from "./journal.ts";
import type { Random } from "./random.ts";
import type { SoakServer } from "./stage.ts";
import type { Supervised } from "./supervised.ts";
import { LEASE_MS } from "./world.ts";

export interface Cast {
  server: SoakServer;
  journal: Journal;
  relays: readonly Supervised[];
  consumers: readonly Supervised[];
  writers: readonly Supervised[];
  maintainers: readonly Supervised[];
  patience: number;
  /** Something of the stage itself. */
  disturb: (() => Promise<boolean>) | undefined;
}

export interface ChaosCounts {
  kills: number;
  pauses: number;
  replacements: number;
  serverKills: number;
  consumerKills: number;
  writerKills: number;
  maintainerKills: number;
  disturbances: number;
}

/** Breaks things, each at its own pace, until the signal aborts. */
export class Chaos {
  readonly counts: ChaosCounts = {
    kills: 0,
    pauses: 0,
    replacements: 0,
    serverKills: 0,
    consumerKills: 0,
    writerKills: 0,
    maintainerKills: 0,
    disturbances: 0,
  };
  readonly #cast: Cast;
  readonly #random: Random;

  constructor(cast: Cast, random: Random) {
    this.#cast = cast;
    this.#random = random;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { journal, patience } = this.#cast;
    const random = this.#random;
    const every = (firstMs: number, ms: number, what: () => unknown): Promise<void> =>
      repeat(firstMs, ms, signal, what);
    await Promise.all([
      every(2000, 1000 * patience, () => this.#breakRelay()),
      every(5000, 10_000 * patience, () => this.#killServer()),
      every(2500, 2500, () => this.#kill("consumerKills", this.#cast.consumers)),
      every(7000, 7000, () => this.#kill("writerKills", this.#cast.writers)),
      every(3300, 3000, () => this.#kill("maintainerKills", this.#cast.maintainers)),
      every(4000, 4500, () => journal.outage(random.int(100, 900))),
      every(3600, 2700, () => this.#disturb()),
    ]);
  }

  async #breakRelay(): Promise<void> {
    const awake = this.#cast.relays.filter((relay) => relay.running && !relay.paused);
    if (awake.length === 0) return;
    const relay = this.#random.pick(awake);
    const what = this.#random.next();
    if (what < 0.45) {
      this.counts.kills++;
      await relay.kill();
    } else if (what < 0.9) {
      this.counts.pauses++;
      relay.pause(LEASE_MS + this.#random.int(100, 1200));
    } else {
      this.counts.replacements++;
      void relay.replace();
    }
  }

  async #disturb(): Promise<void> {
    const { disturb } = this.#cast;
    if (disturb === undefined) return;
    // The server may be down at the moment.
    if (await disturb().catch(() => false)) this.counts.disturbances++;
  }

  async #killServer(): Promise<void> {
    this.counts.serverKills++;
    await this.#cast.server.kill();
    await sleep(this.#random.int(0, 300));
    await this.#cast.server.restart();
  }

  async #kill(count: keyof ChaosCounts, processes: readonly Supervised[]): Promise<void> {
    this.counts[count]++;
    await this.#random.pick(processes).kill();
  }
}

async function repeat(firstMs: number, ms: number, signal: AbortSignal, what: () => unknown): Promise<void> {
  const wait = (delay: number): Promise<unknown> =>
    sleep(Math.max(0, delay), undefined, { signal }).catch(() => undefined);
  await wait(firstMs);
  while (!signal.aborted) {
    const startedAt = performance.now();
    await what();
    await wait(ms - (performance.now() - startedAt));
  }
}
