import { setTimeout as sleep } from "node:timers/promises";
import { createRandom, type Random } from "../../../test/soak/random.ts";
import type { Fleet } from "./fleet.ts";

const KILLED_EARLY = 0.25;
const UP_MS = 20_000;

/** Kills every process and the broker again and again, each at its own pace, and starts it again a moment later. */
export class Chaos {
  brokerKills = 0;
  readonly #fleet: Fleet;
  readonly #seed: number;
  readonly #say: (text: string) => void;

  constructor(fleet: Fleet, seed: number, say: (text: string) => void) {
    this.#fleet = fleet;
    this.#seed = seed;
    this.#say = say;
  }

  /** Until the signal aborts; everything runs again when it resolves. */
  async run(signal: AbortSignal): Promise<void> {
    const { processes, broker } = this.#fleet;
    const loops = processes.map((one, i) => {
      const random = createRandom(this.#seed + i + 1);
      return this.#repeat(random, [500, 5000], [3000, 9000], signal, async () => {
        this.#say(`${one.name} killed`);
        await one.kill();
        await sleep(random.int(0, 1000));
        one.start();
        // Some are killed while they start; were it all of them, a slow machine would never see one work.
        if (!random.chance(KILLED_EARLY)) await one.up(UP_MS);
      });
    });
    const random = createRandom(this.#seed);
    loops.push(
      this.#repeat(random, [1500, 4000], [6000, 14_000], signal, async () => {
        const downMs = random.int(300, 3000);
        this.#say(`broker killed, back after ${(downMs / 1000).toFixed(1)} s`);
        this.brokerKills++;
        await broker.kill();
        await sleep(downMs);
        await broker.restart();
      }),
    );
    await Promise.all(loops);
  }

  async #repeat(
    random: Random,
    first: readonly [number, number],
    then: readonly [number, number],
    signal: AbortSignal,
    what: () => Promise<void>,
  ): Promise<void> {
    const wait = (ms: number): Promise<unknown> => sleep(ms, undefined, { signal }).catch(() => undefined);
    await wait(random.int(...first));
    while (!signal.aborted) {
      await what();
      await wait(random.int(...then));
    }
  }
}
