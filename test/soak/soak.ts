import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import type { PostgresStore } from "../../src/stores/postgres/index.ts";
import type { PostgresServer } from "../harness/start-postgres.ts";
import { type Cast, Chaos } from "./chaos.ts";
import { type BusinessRow, check, type Fact } from "./checker.ts";
import { Journal } from "./journal.ts";
import { createRandom, type Random } from "./random.ts";
import type { SoakOptions } from "./soak-options.ts";
import { Supervised } from "./supervised.ts";
import type { SoakPayload } from "./wire.ts";
import { createWorld, openPool, RELAY, soakStore, type World } from "./world.ts";

const WRITER_PROCESSES = 2;
const WRITERS = 16;
const RELAYS = 3;
const CONSUMERS = 2;

/** One run: write and break for a while, let it drain, compare. */
export class Soak {
  readonly #server: PostgresServer;
  readonly #options: SoakOptions;
  readonly #random: Random;
  readonly #journal: Journal;
  readonly #lines: string[] = [];
  readonly #relayEvents = new Map<string, number>();
  #rotations = 0;
  #drops = 0;
  #requeued = 0;
  #resolved = 0;

  constructor(server: PostgresServer, options: SoakOptions) {
    this.#server = server;
    this.#options = options;
    this.#random = createRandom(options.seed);
    this.#journal = new Journal(createRandom(options.seed + 1));
  }

  async run() {
    const { seconds, seed } = this.#options;
    const startedAt = performance.now();
    const world = await createWorld(this.#server.url);
    const port = await this.#journal.listen();
    const source = openPool(world.source, 4);
    const target = openPool(world.target, 2);
    const cast = this.#start(world, port);
    await Promise.all(
      [...cast.relays, ...cast.consumers, ...cast.writers, ...cast.maintainers].map((process) => process.started()),
    );
    const chaos = new Chaos(cast, this.#random);
    const writing = new AbortController();
    const living = new AbortController();
    const chores = [this.#mend(source, living.signal), this.#progress(chaos, living.signal)];
    const broken = chaos.run(writing.signal);
    await sleep(seconds * 1000);
    writing.abort();
    await broken;
    await Promise.all(cast.writers.map((writer) => writer.stop()));
    this.#journal.calm();
    this.#say("writers stopped; draining");
    const drained = await this.#drain(source, target);
    living.abort();
    await Promise.all(chores);
    const verdict = check(await businessOf(source), this.#journal.entries, await effectsOf(target));
    const leftovers = drained ? await leftoversOf(source) : [];
    const processes = [...cast.relays, ...cast.consumers, ...cast.writers, ...cast.maintainers];
    await Promise.all(processes.map((process) => process.stop()));
    this.#journal.close();
    const crashes = processes.flatMap((process) => process.crashes);
    const kinds = await countKinds(source);
    await Promise.all([source.end(), target.end()]);
    const { lost, doubled, reordered, phantoms } = verdict;
    return {
      passed: lost + doubled + reordered + phantoms + crashes.length + leftovers.length === 0 && verdict.committed > 0,
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

  #start(world: World, port: number): Cast {
    const seedOf = (start: number, i: number): string => String(this.#options.seed * 1000 + start * 10 + i);
    const many = (count: number, make: (i: number) => Supervised): Supervised[] =>
      Array.from({ length: count }, (_, i) => make(i));
    const supervised = (name: string, file: string, args: (start: number) => string[]): Supervised =>
      new Supervised({ name, file: `./${file}`, args, onLine: (line) => this.#heard(name, line) });
    return {
      server: this.#server,
      journal: this.#journal,
      relays: many(RELAYS, (i) =>
        supervised(`relay-${i}`, "relay-process.ts", () => [world.source, String(port), `relay-${i}`, String(i > 0)]),
      ),
      consumers: many(CONSUMERS, (i) =>
        supervised(`consumer-${i}`, "consumer-process.ts", (start) => [world.target, String(port), seedOf(start, i)]),
      ),
      writers: many(WRITER_PROCESSES, (i) =>
        supervised(`writer-${i}`, "writer-process.ts", (start) => [
          world.source,
          seedOf(start, i),
          String(WRITERS / WRITER_PROCESSES),
        ]),
      ),
      maintainers: many(2, (i) => supervised(`maintainer-${i}`, "maintainer-process.ts", () => [world.source, "400"])),
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
    if (word === "store_error" || word === "error" || word === "dead")
      this.#count(`${word} ${rest.slice(0, word === "dead" ? 0 : 1).join(" ")}`.trim());
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

  /** Requeues dead letters and ends prepared transactions that a crash left behind. */
  async #mend(source: pg.Pool, signal: AbortSignal): Promise<void> {
    const store = soakStore(source);
    while (!signal.aborted) {
      await sleep(1500, undefined, { signal }).catch(() => undefined);
      try {
        this.#resolved += await this.#resolvePrepared(source, "2 s");
        await this.#requeue(store);
      } catch {
        // The server is down at the moment.
      }
    }
  }

  async #requeue(store: PostgresStore): Promise<void> {
    const dead = await store.admin.dead({ relay: RELAY, limit: 1000 });
    for (const { body } of dead)
      if (typeof body === "string") this.#journal.heal((JSON.parse(body) as SoakPayload).nonce);
    if (dead.length > 0) this.#requeued += await store.admin.requeue({ relay: RELAY });
  }

  async #resolvePrepared(source: pg.Pool, olderThan: string): Promise<number> {
    const { rows } = await source.query<{ gid: string }>(
      "select gid from pg_prepared_xacts where database = current_database() and prepared < now() - $1::interval",
      [olderThan],
    );
    let resolved = 0;
    for (const { gid } of rows) {
      const end = this.#random.chance(0.6) ? "commit" : "rollback";
      await source.query(`${end} prepared '${gid}'`).then(
        () => resolved++,
        () => undefined,
      );
    }
    return resolved;
  }

  /** True when every committed message has had its effect in time. */
  async #drain(source: pg.Pool, target: pg.Pool): Promise<boolean> {
    const endsAt = performance.now() + this.#options.drainSeconds * 1000;
    const count = async (pool: pg.Pool, sql: string): Promise<number> =>
      Number((await pool.query<{ n: string }>(sql)).rows[0]?.n);
    while (performance.now() < endsAt) {
      try {
        this.#resolved += await this.#resolvePrepared(source, "0 s");
        const prepared = await count(source, "select count(*) as n from pg_prepared_xacts");
        const committed = await count(source, "select count(*) as n from business");
        const effects = await count(target, "select count(distinct nonce) as n from effect");
        if (prepared === 0 && committed === effects && this.#journal.undelivered === 0) return true;
      } catch {
        // Tried again until the time is over.
      }
      await sleep(250);
    }
    return false;
  }
}

async function businessOf(source: pg.Pool): Promise<BusinessRow[]> {
  const { rows } = await source.query<{ key: string; n: string; nonce: string; kind: string }>(
    "select key, n, nonce, kind from business",
  );
  return rows.map((row) => ({ ...row, n: Number(row.n) }));
}

async function effectsOf(target: pg.Pool): Promise<Fact[]> {
  const { rows } = await target.query<{ key: string; n: string; nonce: string }>(
    "select key, n, nonce from effect order by seq",
  );
  return rows.map((row) => ({ ...row, n: Number(row.n) }));
}

async function countKinds(source: pg.Pool): Promise<Record<string, number>> {
  const { rows } = await source.query<{ kind: string; n: string }>(
    "select kind, count(*) as n from business group by 1 order by 1",
  );
  return Object.fromEntries(rows.map(({ kind, n }) => [kind, Number(n)]));
}

/** What should be empty or whole when everything has arrived; asked until it is, for a few seconds. */
async function leftoversOf(source: pg.Pool): Promise<string[]> {
  const sql = `select
    (select count(*)::int from txbox.parked) as parked, (select count(*)::int from txbox.blocked) as blocked,
    (select count(*)::int from txbox.scheduled) as scheduled, (select 64 - count(*)::int from txbox.lane l
      join txbox.cursor c on c.id = l.cursor_id where c.owner is not null and c.lease_until > clock_timestamp()) as "unowned lanes"`;
  let found: string[] = [];
  for (let tries = 0; tries < 40; tries++) {
    const { rows } = await source.query<Record<string, number>>(sql);
    found = Object.entries(rows[0] ?? {}).flatMap(([name, count]) => (count === 0 ? [] : [`${name}: ${count}`]));
    if (found.length === 0) break;
    await sleep(250);
  }
  return found;
}
