import { setTimeout as sleep } from "node:timers/promises";
import type { ContestantName } from "../contestants/index.ts";
import { createBusinessTable } from "../lib/business.ts";
import type { Context } from "../lib/context.ts";
import type { Times } from "../lib/contestant.ts";
import type { Player } from "../lib/player.ts";
import { mustEqual } from "../lib/rounds.ts";
import { meterBackends } from "../lib/server-cpu.ts";
import { quantile } from "../lib/stats.ts";

export const summary = "commit to handler at 1,000 messages a second, and what an idle relay costs";

const PER_SECOND = 1000;
const CONNECTIONS = 8;
/** The start of a run, not counted: connections, first compilation. */
const SETTLING_MS = 500;

const LISTENERS: { key: string; name: ContestantName; how: string; quickSeconds: number }[] = [
  { key: "txbox", name: "txbox", how: "polling alone", quickSeconds: 2 },
  { key: "graphile", name: "graphile-worker", how: "LISTEN/NOTIFY", quickSeconds: 1.2 },
  { key: "pg_boss", name: "pg-boss", how: "LISTEN/NOTIFY", quickSeconds: 1.2 },
];

export async function run(context: Context): Promise<void> {
  const pairs = await Promise.all(LISTENERS.map(({ name }) => prepare(context, name)));
  for (const [i, { key, name, how, quickSeconds }] of LISTENERS.entries()) {
    const { consumer, producer } = pairs[i] as Pair;
    await consumer.listen();
    context.say(`latency: ${name}, ${PER_SECOND} messages a second`);
    const waits = await measureWaits(consumer, producer, context.quick ? quickSeconds : 10);
    context.report.figure(`latency_${key}_p50`, quantile(waits, 0.5), "ms", how);
    context.report.figure(`latency_${key}_p99`, quantile(waits, 0.99), "ms", how);
    context.report.figure(`latency_${key}_max`, quantile(waits, 1), "ms", how);
    if (key === "txbox") await idle(context, consumer);
    await consumer.hush();
  }
}

interface Pair {
  consumer: Player;
  producer: Player;
}

async function prepare(context: Context, name: ContestantName): Promise<Pair> {
  const url = await context.database();
  const [consumer, producer] = [context.player(name, url), context.player(name, url)];
  await producer.setup();
  await createBusinessTable(url);
  return { consumer, producer };
}

/** Writer and consumer are two processes: nothing but the database tells the consumer of a message. */
export async function measureWaits(consumer: Player, producer: Player, seconds: number): Promise<number[]> {
  const committed = await producer.write({ perSecond: PER_SECOND, seconds, connections: CONNECTIONS });
  const arrivals = await allArrived(consumer, committed.length);
  const start = Math.min(...committed.map(([, time]) => Number(time)));
  const waits = committed
    .filter(([, time]) => Number(time) - start > SETTLING_MS * 1e6)
    // A consumer may see the commit before its writer is told of it.
    .map(([seq, time]) => Math.max(0, Number((arrivals.get(seq) ?? 0n) - BigInt(time)) / 1e6));
  return waits;
}

async function allArrived(consumer: Player, count: number): Promise<Map<number, bigint>> {
  let times: Times = [];
  for (let tries = 0; tries < 100 && times.length < count; tries += 1) {
    await sleep(50);
    times = await consumer.arrivals();
  }
  mustEqual(`latency of ${consumer.name}, messages that arrived`, times.length, count);
  return new Map(times.map(([seq, time]) => [seq, BigInt(time)]));
}

async function idle(context: Context, relay: Player): Promise<void> {
  const ms = context.quick ? 2000 : 10_000;
  context.say(`latency: idle relay for ${ms / 1000} s`);
  const { client, server } = await idleCpu(context, relay, ms);
  context.report.figure("idle_relay_client", client, "% of a core");
  if (server === undefined) return;
  context.report.figure("idle_relay_server", server, "% of a core");
  context.report.figure("idle_relay", client + server, "% of a core", "goal ≤ 2");
}

interface IdleCpu {
  client: number;
  /** Undefined where /proc is not there. */
  server: number | undefined;
}

/** CPU of the relay's process and of its connections while there is nothing to do, in percent of one core. */
export async function idleCpu(context: Context, relay: Player, ms: number): Promise<IdleCpu> {
  await sleep(500);
  const startedAt = performance.now();
  const before = (await relay.usage()).cpuMs;
  const meter = await meterBackends(context.server.url, relay.url);
  await sleep(ms);
  const serverMs = await meter.stop();
  const clientMs = (await relay.usage()).cpuMs - before;
  const percent = (cpuMs: number): number => (cpuMs * 100) / (performance.now() - startedAt);
  return { client: percent(clientMs), server: serverMs === undefined ? undefined : percent(serverMs) };
}
