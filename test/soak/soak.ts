import { setTimeout as sleep } from "node:timers/promises";
import { type Cast, Chaos } from "./chaos.ts";
import { check } from "./checker.ts";
import { Journal } from "./journal.ts";
import { createRandom, type Random } from "./random.ts";
import type { SoakOptions } from "./soak-options.ts";
import type { SoakServer, Stage, Watch, World } from "./stage.ts";
import { Supervised } from "./supervised.ts";
import type { SoakPayload } from "./wire.ts";
import { RELAY } from "./world.ts";

const WRITER_PROCESSES = 2;
const WRITERS = 16;
const RELAYS = 3;
const CONSUMERS = 2;

/** What processes say that is counted, with so many words behind it. */
const TOLD = new Map([
  ["store_error", 1],
  ["error", 1],
  ["dead", 0],
  ["stream_started", 2],
  ["stream_lost", 1],
]);

/** One run: write and break for a while, let it drain, compare. */
export class Soak {
  readonly #stage: Stage;
  readonly #server: SoakServer;
  readonly #options: SoakOptions;
  readonly #random: Random;
  readonly #journal: Journal;
  readonly #lines: string[] = [];
  readonly #relayEvents = new Map<string, number>();
  #rotations = 0;
  #drops = 0;
  #requeued = 0;
  #resolved = 0;

  constructor(stage: Stage, server: SoakServer, options: SoakOptions) {
    this.#stage = stage;
    this.#server = server;
    this.#options = options;
    this.#random = createRandom(options.seed);
    this.#journal = new Journal(createRandom(options.seed + 1));
  }

  async run() {
    const { seconds, seed } = this.#options;
    const startedAt = performance.now();
    const world = await this.#stage.createWorld(this.#server.url);
    const port = await this.#journal.listen();
    const watch = this.#stage.watch(world);
    const cast = this.#start(world, port, watch);
    await Promise.all(
      [...cast.relays, ...cast.consumers, ...cast.writers, ...cast.maintainers].map((process) => process.started()),
    );
    const chaos = new Chaos(cast, this.#random);
    const writing = new AbortController();
    const living = new AbortController();
    const chores = [this.#mend(watch, living.signal), this.#progress(chaos, living.signal)];
    const broken = chaos.run(writing.signal);
    await sleep(seconds * 1000);
    writing.abort();
    await broken;
    await Promise.all(cast.writers.map((writer) => writer.stop()));
    this.#journal.calm();
    this.#say("writers stopped; draining");
    const drained = await this.#drain(watch);
    living.abort();
    await Promise.all(chores);
    const verdict = check(await watch.business(), this.#journal.entries, await watch.effects());
    const leftovers = drained ? await leftoversOf(watch) : [];
    const processes = [...cast.relays, ...cast.consumers, ...cast.writers, ...cast.maintainers];
    await Promise.all(processes.map((process) => process.stop()));
    this.#journal.close();
    const crashes = processes.flatMap((process) => process.crashes);
    const kinds = Object.fromEntries(
      [...Map.groupBy(await watch.business(), ({ kind }) => kind)].map(([kind, rows]) => [kind, rows.length]),
    );
    await watch.close();
    const { lost, doubled, reordered, phantoms } = verdict;
    return {
      passed: lost + doubled + reordered + phantoms + crashes.length + leftovers.length === 0 && verdict.committed > 0,
      store: this.#stage.name,
      seed,
      seconds,
      totalSeconds: Math.round((performance.now() - startedAt) / 1000),
      ...verdict,
      ...chaos.counts,
      rotations: this.#rotations,
      drops: this.#drops,
      requeued: this.#requeued,
      preparedResolved: this.#resolved,
      redeliveries: this.#journal.redeliveries,
      refused: this.#journal.refused,
      relayEvents: Object.fromEntries(this.#relayEvents),
      kinds,
      leftovers,
      crashes,
    };
  }

  #start(world: World, port: number, watch: Watch): Cast {
    const stage = this.#stage.name;
    const seedOf = (start: number, i: number): string => String(this.#options.seed * 1000 + start * 10 + i);
    const many = (count: number, make: (i: number) => Supervised): Supervised[] =>
      Array.from({ length: count }, (_, i) => make(i));
    const supervised = (name: string, file: string, args: (start: number) => string[]): Supervised =>
      new Supervised({ name, file: `./${file}`, args, onLine: (line) => this.#heard(name, line) });
    return {
      server: this.#server,
      journal: this.#journal,
      patience: this.#stage.patience ?? 1,
      disturb: watch.disturb && (() => watch.disturb!(this.#random)),
      relays: many(RELAYS, (i) =>
        supervised(`relay-${i}`, "relay-process.ts", () => [
          stage,
          world.source,
          String(port),
          `relay-${i}`,
          String(i > 0),
        ]),
      ),
      consumers: many(CONSUMERS, (i) =>
        supervised(`consumer-${i}`, "consumer-process.ts", (start) => [
          stage,
          world.target,
          String(port),
          seedOf(start, i),
        ]),
      ),
      writers: many(WRITER_PROCESSES, (i) =>
        supervised(`writer-${i}`, this.#stage.writerFile, (start) => [
          world.source,
          seedOf(start, i),
          String(WRITERS / WRITER_PROCESSES),
        ]),
      ),
      maintainers: many(2, (i) =>
        supervised(`maintainer-${i}`, "maintainer-process.ts", () => [stage, world.source, "400"]),
      ),
    };
  }

  #heard(name: string, line: string): void {
    const [word, ...rest] = line.split(" ");
    if (word === "done") {
      this.#rotations += Number(rest[0]);
      this.#drops += Number(rest[1]);
    } else if (word === "events") {
      return;
    }
    const told = TOLD.get(word ?? "");
    if (told !== undefined) this.#count([word, ...rest.slice(0, told)].join(" "));
    if (this.#options.verbose && word !== "done") this.#say(`${name}: ${line.slice(0, 300)}`);
  }

  #count(what: string): void {
    this.#relayEvents.set(what, (this.#relayEvents.get(what) ?? 0) + 1);
  }

  #say(text: string): void {
    this.#lines.push(text);
    process.stdout.write(`${text}\n`);
  }

  async #progress(chaos: Chaos, signal: AbortSignal): Promise<void> {
    const startedAt = performance.now();
    while (!signal.aborted) {
      await sleep(3000, undefined, { signal }).catch(() => undefined);
      const { kills, pauses, serverKills } = chaos.counts;
      const seconds = Math.round((performance.now() - startedAt) / 1000);
      this.#say(
        `${seconds} s: ${this.#journal.entries.length} published, ${this.#journal.undelivered} on the way, ${kills} kills, ` +
          `${pauses} pauses, ${serverKills} server kills, ${this.#rotations} rotations, ${this.#drops} drops, ${this.#requeued} requeued`,
      );
    }
  }

  /** Requeues dead letters and ends what a crash left undecided. */
  async #mend(watch: Watch, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(1500, undefined, { signal }).catch(() => undefined);
      try {
        this.#resolved += await watch.resolve(this.#random, false);
        await this.#requeue(watch);
      } catch {
        // The server is down at the moment.
      }
    }
  }

  async #requeue({ store }: Watch): Promise<void> {
    const dead = await store.admin.dead({ relay: RELAY, limit: 1000 });
    for (const { body } of dead)
      if (typeof body === "string") this.#journal.heal((JSON.parse(body) as SoakPayload).nonce);
    if (dead.length > 0) this.#requeued += await store.admin.requeue({ relay: RELAY });
  }

  /** True when every committed message has had its effect in time. */
  async #drain(watch: Watch): Promise<boolean> {
    const endsAt = performance.now() + this.#options.drainSeconds * 1000;
    while (performance.now() < endsAt) {
      try {
        this.#resolved += await watch.resolve(this.#random, true);
        const { undecided, committed, effects } = await watch.left();
        if (undecided === 0 && committed === effects && this.#journal.undelivered === 0) return true;
      } catch {
        // Tried again until the time is over.
      }
      await sleep(250);
    }
    return false;
  }
}

/** Asked until all is as it should be, for a few seconds. */
async function leftoversOf(watch: Watch): Promise<string[]> {
  let found: string[] = [];
  for (let tries = 0; tries < 40; tries++) {
    const counts = await watch.leftovers();
    found = Object.entries(counts).flatMap(([name, count]) => (count === 0 ? [] : [`${name}: ${count}`]));
    if (found.length === 0) break;
    await sleep(250);
  }
  return found;
}
