import { serverOrSkip } from "../../test/harness/index.ts";
import { CONCURRENCY } from "../brokers/broker.ts";
import { BROKERS } from "../brokers/index.ts";
import type { BrokerName } from "../brokers/index.ts";
import { countRows } from "../lib/business.ts";
import type { Context } from "../lib/context.ts";
import type { Player } from "../lib/player.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";
import type { Entry } from "../lib/rounds.ts";
import { median } from "../lib/stats.ts";

export const summary =
  "PostgreSQL to each broker against its raw client, and into the inbox against a consumer by hand";

/** So many that a round takes about as long with each. */
export const PUBLISHED: Record<BrokerName, { quick: number; full: number }> = {
  rabbitmq: { quick: 8000, full: 30_000 },
  kafka: { quick: 30_000, full: 100_000 },
  nats: { quick: 8000, full: 30_000 },
  redis: { quick: 30_000, full: 100_000 },
};
export const CONSUMED = { quick: 800, full: 5000 };
const PUBLISHING = { quick: { count: 6, budgetMs: 5000 }, full: { count: 10, budgetMs: 90_000 } };
/** A relay runs for weeks: what counts is its speed when the compiler is done with it, and with the client. */
export const WARM_UPS = 3;
const CONSUMING = { quick: { count: 4, budgetMs: 2500 }, full: { count: 8, budgetMs: 60_000 } };

export function run(context: Context): Promise<void> {
  return withBrokers(context, (name, address) => measure(context, name, address));
}

/** Runs `measureOne` with each broker for which there is a server. */
export async function withBrokers(
  context: Context,
  measureOne: (name: BrokerName, address: string) => Promise<void>,
): Promise<void> {
  for (const name of Object.keys(BROKERS) as BrokerName[]) {
    context.say(`brokers: starting ${name}`);
    // One at a time: even an idle server would take part.
    const slot = await serverOrSkip(name, async () => {
      const { server, address } = await BROKERS[name].start();
      return { address, stop: () => server.stop() };
    });
    if (slot.skipped) {
      context.say(`brokers: ${name} is SKIPPED, there is no server`);
      continue;
    }
    try {
      await measureOne(name, slot.server.address);
      await context.clear();
    } finally {
      await slot.stop();
    }
  }
}

async function measure(context: Context, name: BrokerName, address: string): Promise<void> {
  const [txbox, raw] = await Promise.all(
    (["broker-txbox", "broker-raw"] as const).map(async (contestant) => {
      const player = context.player(contestant, await context.database(), name, address);
      await player.setup();
      return player;
    }),
  );
  await publishing(context, name, txbox!, raw!);
  // What lay ready would be in the way of the garbage collector.
  await raw!.fill(0);
  await consuming(context, name, txbox!, raw!);
}

async function publishing(context: Context, name: BrokerName, relay: Player, raw: Player): Promise<void> {
  const { quick, report } = context;
  const messages = PUBLISHED[name][quick ? "quick" : "full"];
  context.say(`brokers: ${name}, filling ${messages} messages`);
  await Promise.all([relay.fill(messages), raw.fill(messages)]);
  const cpu = new CpuNotes();
  const entry = (key: string, player: Player, batch: number): Entry => ({
    async run() {
      const { handled, left, ms, cpuMs = 0 } = await player.drain({ messages, batch });
      mustEqual(`${key}, messages that arrived`, handled, messages);
      mustEqual(`${key}, messages left`, left, 0);
      cpu.note(key, cpuMs, messages);
      return (messages * 1000) / ms;
    },
    // Small batches take long.
    every: batch === 1000 ? 1 : 3,
  });
  const entries: Record<string, Entry> = {};
  for (const batch of quick ? [1000] : [1000, 100]) {
    entries[`${name}_relay_${batch}`] = entry(`${name}_relay_${batch}`, relay, batch);
    entries[`${name}_raw_${batch}`] = entry(`${name}_raw_${batch}`, raw, batch);
  }
  context.say(`brokers: ${name}, warming up`);
  for (let round = 0; round < WARM_UPS; round++) for (const { run: once } of Object.values(entries)) await once();
  cpu.clear();
  context.say(`brokers: ${name}, publishing`);
  const results = await interleave(quick ? PUBLISHING.quick : PUBLISHING.full, entries);
  for (const [key, rounds] of Object.entries(results)) report.rate(key, rounds, "msg/s", cpu.median(key));
  report.ratio(`${name}_vs_raw`, `${name}_relay_1000`, `${name}_raw_1000`, "≥ 0.85, stretch 0.95");
  report.ratio(`${name}_100_vs_raw_100`, `${name}_relay_100`, `${name}_raw_100`);
}

async function consuming(context: Context, name: BrokerName, inbox: Player, hand: Player): Promise<void> {
  const { quick, report } = context;
  const messages = CONSUMED[quick ? "quick" : "full"];
  const cpu = new CpuNotes();
  const entry = (key: string, player: Player): Entry => {
    let orders = 0;
    return {
      async run() {
        const { handled, unread, ms, cpuMs } = await player.consume(messages);
        orders += handled;
        mustEqual(`${key}, messages not acknowledged`, unread, 0);
        mustEqual(`${key}, orders`, await countRows(player.url, "orders"), orders);
        cpu.note(key, cpuMs, messages);
        return (messages * 1000) / ms;
      },
    };
  };
  const entries = {
    [`${name}_inbox`]: entry(`${name}_inbox`, inbox),
    [`${name}_hand`]: entry(`${name}_hand`, hand),
  };
  context.say(`brokers: ${name}, warming up the consumers`);
  for (const { run: once } of Object.values(entries)) await once();
  cpu.clear();
  context.say(`brokers: ${name}, consuming`);
  const results = await interleave(quick ? CONSUMING.quick : CONSUMING.full, entries);
  for (const [key, rounds] of Object.entries(results)) {
    report.rate(key, rounds, "msg/s", `${CONCURRENCY} at a time, ${cpu.median(key)}`);
  }
  report.ratio(`${name}_inbox_vs_hand`, `${name}_inbox`, `${name}_hand`, "≥ 0.85");
}

/** What the client's process took: on a busy machine it says more than the rate. */
class CpuNotes {
  readonly #perMessage = new Map<string, number[]>();

  note(key: string, cpuMs: number, messages: number): void {
    const notes = this.#perMessage.get(key) ?? [];
    this.#perMessage.set(key, [...notes, (cpuMs * 1000) / messages]);
  }

  clear(): void {
    this.#perMessage.clear();
  }

  median(key: string): string {
    return `client CPU ${median(this.#perMessage.get(key) ?? []).toPrecision(3)} µs a message`;
  }
}
