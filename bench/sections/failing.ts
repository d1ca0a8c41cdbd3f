import { fork } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { createOutbox } from "../../src/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import type { Context } from "../lib/context.ts";
import type { FailingReport } from "../lib/failing-relay.ts";
import { median, quantile } from "../lib/stats.ts";

export const summary = "healthy messages beside keys that fail: at once, in 50 ms, in 1 s";

const PER_SECOND = 500;
const SECONDS = 5;
/** Transactions a second. */
const COMMITS = 100;
const HOW: Readonly<Record<string, number>> = { at_once: 0, in_50ms: 50, in_1s: 1000 };
const COUNTS = { quick: [2000], full: [200, 2000, 20_000] };
/** Not counted: the relay was idle before, and looked for messages now and then only. */
const WARM_UP_MS = 500;
/** Failing keys are tried once before the measuring, but no longer than this is waited for. */
const FIRST_TRIES_MS = 20_000;

export async function run(context: Context): Promise<void> {
  const counts = context.quick ? COUNTS.quick : COUNTS.full;
  const ways = Object.entries(HOW);
  const cases = counts.flatMap((count) => ways.map(([how, failAfterMs]) => ({ count, how, failAfterMs })));
  const rounds = context.quick ? 1 : 3;
  const seen = new Map<string, Healthy[]>();
  // By turns, so that what else the machine does meets all of them: a hundredth of a round is soon delayed.
  for (let round = 1; round <= rounds; round++) {
    for (const { count, how, failAfterMs } of [{ count: 0, how: "none", failAfterMs: 0 }, ...cases]) {
      context.say(`failing: ${count} keys, ${how}, round ${round} of ${rounds}`);
      const name = count === 0 ? "failing_none" : `failing_${count}_${how}`;
      const healthy = await measure(context, count, failAfterMs, SECONDS);
      seen.set(name, [...(seen.get(name) ?? []), healthy]);
    }
  }
  for (const [name, those] of seen) note(context, name, those);
  for (const count of counts) {
    const rates = ways.map(([how]) => medianOf(seen.get(`failing_${count}_${how}`)!, "perSecond"));
    const worst = `failing_${count}_worst_rate`;
    context.report.figure(worst, Math.min(...rates), "msg/s");
    context.report.ratio(`failing_${count}_vs_none`, worst, "failing_none_rate", "≥ 0.9");
    const slowest = `failing_${count}_worst_p99`;
    context.report.figure(
      slowest,
      Math.max(...ways.map(([how]) => medianOf(seen.get(`failing_${count}_${how}`)!, "p99"))),
      "ms",
    );
    context.report.ratio(`failing_${count}_p99_vs_none`, slowest, "failing_none_p99", "≤ 2");
  }
}

interface Healthy {
  perSecond: number;
  p50: number;
  p99: number;
  /** How long it took until each failing key was tried. */
  firstTriesMs: number;
}

function note({ report }: Context, name: string, rounds: readonly Healthy[]): void {
  const middle = rounds.length > 1 ? `median of ${rounds.length} rounds` : "";
  report.figure(`${name}_rate`, medianOf(rounds, "perSecond"), "msg/s", `${PER_SECOND} were enqueued each second`);
  report.figure(`${name}_p50`, medianOf(rounds, "p50"), "ms", middle);
  report.figure(`${name}_p99`, medianOf(rounds, "p99"), "ms", middle);
  const firstTriesMs = medianOf(rounds, "firstTriesMs");
  if (firstTriesMs > 0) report.figure(`${name}_first_tries`, firstTriesMs, "ms");
}

function medianOf(rounds: readonly Healthy[], what: keyof Healthy): number {
  return median(rounds.map((round) => round[what]));
}

async function measure(context: Context, failing: number, failAfterMs: number, seconds: number): Promise<Healthy> {
  const url = await context.database();
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  const store = createPostgresStore({ client: pool });
  await store.migrator.migrate();
  const outbox = createOutbox({ store });
  const commit = async (messages: { key: string; n: number }[]): Promise<void> => {
    const client = await pool.connect();
    try {
      await client.query("begin");
      await outbox.enqueue(
        client,
        messages.map(({ key, n }) => ({ stream: "s", type: "t", key, payload: { n } })),
      );
      await client.query("commit");
    } finally {
      client.release();
    }
  };
  for (let from = 0; from < failing; from += 1000) {
    const length = Math.min(1000, failing - from);
    await commit(Array.from({ length }, (_, i) => ({ key: `failing-${from + i}`, n: -1 })));
  }
  const relay = fork(fileURLToPath(new URL("../lib/failing-relay.ts", import.meta.url)), [url, String(failAfterMs)]);
  try {
    await once(relay, "message");
    const firstTriesMs = await untilTried(relay, failing);
    const { committed, tookMs } = await writeHealthy(commit, seconds);
    const arrivals = await answer(relay, "arrivals");
    if (!("arrivals" in arrivals)) throw new Error("the relay gave another answer");
    // What had arrived when the last one was written: the rate at which healthy messages leave.
    const counted = arrivals.arrivals.filter(([n]) => n >= (PER_SECOND * WARM_UP_MS) / 1000);
    const waits = counted.map(([n, time]) => Number(BigInt(time) - committed[n]!) / 1e6);
    const perSecond = (arrivals.arrivals.length * 1000) / tookMs;
    return { perSecond, p50: quantile(waits, 0.5), p99: quantile(waits, 0.99), firstTriesMs };
  } finally {
    relay.send("stop");
    await Promise.race([once(relay, "exit"), sleep(3000)]);
    relay.kill("SIGKILL");
    await pool.end();
  }
}

async function untilTried(relay: ChildProcess, failing: number): Promise<number> {
  const startedAt = performance.now();
  while (performance.now() - startedAt < FIRST_TRIES_MS) {
    const report = await answer(relay, "tried");
    if ("tried" in report && report.tried >= failing) break;
    await sleep(50);
  }
  return failing === 0 ? 0 : performance.now() - startedAt;
}

async function answer(relay: ChildProcess, question: string): Promise<FailingReport> {
  const answered = once(relay, "message");
  relay.send(question);
  const [report] = (await answered) as [FailingReport];
  return report;
}

/** Half of the messages have keys that come again and again, half have keys of their own. */
async function writeHealthy(
  commit: (messages: { key: string; n: number }[]) => Promise<void>,
  seconds: number,
): Promise<{ committed: bigint[]; tookMs: number }> {
  const each = PER_SECOND / COMMITS;
  const committed: bigint[] = [];
  const startedAt = performance.now();
  for (let tick = 0; tick < seconds * COMMITS; tick++) {
    const numbers = Array.from({ length: each }, (_, i) => tick * each + i);
    await commit(numbers.map((n) => ({ key: n % 2 === 0 ? `healthy-${n % 50}` : `once-${n}`, n })));
    for (const n of numbers) committed[n] = process.hrtime.bigint();
    const next = startedAt + ((tick + 1) * 1000) / COMMITS;
    await sleep(Math.max(0, next - performance.now()));
  }
  // The last ones are on their way.
  await sleep(200);
  return { committed, tookMs: performance.now() - startedAt };
}
