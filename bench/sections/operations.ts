import pg from "pg";
import * as client from "prom-client";
import { createRelay } from "../../src/index.ts";
import { collectFigures } from "../../src/observability/prometheus/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { ageLog } from "../contestants/txbox-log.ts";
import type { Context } from "../lib/context.ts";
import { OPERATION_NAMES } from "../lib/operations.ts";
import type { Player } from "../lib/player.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";
import { meterBackends } from "../lib/server-cpu.ts";
import { median, quantile } from "../lib/stats.ts";
import { withClient } from "../lib/with-client.ts";

export const summary = "the relay at full speed while it is observed, and a scrape of a large log";

const MESSAGES = { quick: 200_000, full: 1_000_000 };
const ROUNDS = { quick: { count: 5, budgetMs: 15_000 }, full: { count: 12, budgetMs: 240_000 } };
/** Messages in the log that is scraped. */
const LOG = { quick: 1_000_000, full: 10_000_000 };
const SCRAPES = 30;

export async function run(context: Context): Promise<void> {
  await drainObserved(context);
  await context.clear();
  await scrapeLargeLog(context);
}

/** Both sides drain the same log by turns, each in a process of its own. */
async function drainObserved(context: Context): Promise<void> {
  const { quick, report } = context;
  const messages = quick ? MESSAGES.quick : MESSAGES.full;
  const url = await context.database();
  const bare = context.player("txbox", url);
  const observed = context.player("txbox-operations", url, ...OPERATION_NAMES);
  await bare.setup();
  context.say(`operations: filling ${messages} messages`);
  await bare.fill(messages);
  await traceOneInHundred(url);
  context.say("operations: warming up");
  for (const player of [bare, observed]) await rate(player, messages);
  context.say(`operations: draining with and without ${OPERATION_NAMES.join(", ")}`);
  const cpu: Record<"with" | "without", number[]> = { with: [], without: [] };
  const measured = async (player: Player, side: keyof typeof cpu): Promise<number> => {
    const { cpuMs: before } = await player.usage();
    const perSecond = await rate(player, messages);
    cpu[side].push((((await player.usage()).cpuMs - before) * 1000) / messages);
    return perSecond;
  };
  // In the order a, b, b, a: neither is always the first.
  const results = await interleave(quick ? ROUNDS.quick : ROUNDS.full, {
    without: { run: () => measured(bare, "without") },
    with: { run: () => measured(observed, "with") },
    with_again: { run: () => measured(observed, "with") },
    without_again: { run: () => measured(bare, "without") },
  });
  const note = OPERATION_NAMES.join(", ");
  const [on, off] = [
    [...results.with, ...results.with_again],
    [...results.without, ...results.without_again],
  ];
  report.rate("drain_with_operations", on, "msg/s", note);
  report.rate("drain_without_operations", off, "msg/s");
  report.ratioOfMedians("drain_with_operations", on, off, "≥ 0.97");
  // Neighbours have the same noise: on a busy machine their ratio says more than that of all.
  const pairs = [...ratios(results.with, results.without), ...ratios(results.with_again, results.without_again)];
  report.figure("drain_with_operations_pairs", median(pairs), "ratio", "median over pairs of neighbouring drains");
  for (const [side, rounds] of Object.entries(cpu))
    report.figure(`drain_${side}_operations_cpu`, median(rounds), "µs/msg", "CPU time of the relay's process, median");
}

function ratios(above: readonly number[], below: readonly number[]): number[] {
  return above.flatMap((value, i) => (below[i] === undefined ? [] : [value / below[i]]));
}

/** As messages of a service that samples 1 % of its traces: each knows its trace, of few there are spans. */
async function traceOneInHundred(url: string): Promise<void> {
  await withClient(url, async (client) => {
    await client.query(
      `update txbox.message set headers = json_build_object('schemaVersion', 1, 'traceparent',
         '00-' || md5(id) || '-' || left(md5(type || id), 16) || case when position % 100 = 0 then '-01' else '-00' end)`,
    );
    await client.query("vacuum analyze txbox.message");
  });
}

async function rate(player: Player, messages: number): Promise<number> {
  const { handled, left, ms } = await player.drain({ messages, batch: 1000 });
  mustEqual(`operations: drain by ${player.name}, messages handled`, handled, messages);
  mustEqual(`operations: drain by ${player.name}, messages left`, left, 0);
  return (messages * 1000) / ms;
}

/** One relay has all of the log before it, another none. */
async function scrapeLargeLog(context: Context): Promise<void> {
  const { quick, report } = context;
  const messages = quick ? LOG.quick : LOG.full;
  const url = await context.database();
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  try {
    const store = createPostgresStore({ client: pool });
    await store.migrator.migrate();
    context.say(`operations: filling ${messages} messages`);
    await ageLog(url, messages, "plain");
    const publisher = { keepsKeyOrder: true, publish: () => Promise.resolve([]) };
    for (const start of ["earliest", "now"] as const) {
      // No more than its place in the log: nothing is published.
      await createRelay({ store, name: start, start, publisher, maintenance: false }).drainOnce({ max: 0 });
    }
    const registry = new client.Registry();
    collectFigures({ client, registry, store, everyMs: 0, deadlineMs: 60_000 });
    await registry.metrics();
    const times: number[] = [];
    const server = await meterBackends(context.server.url, url);
    const own = process.cpuUsage();
    for (let n = 0; n < SCRAPES; n += 1) {
      const startedAt = performance.now();
      const text = await registry.metrics();
      times.push(performance.now() - startedAt);
      if (!text.includes("txbox_up 1")) throw new Error("operations: a scrape without figures");
    }
    const { user, system } = process.cpuUsage(own);
    const serverMs = await server.stop();
    const [relay] = (await store.admin.figures()).relays.filter(({ name }) => name === "earliest");
    const estimate = relay?.pending ?? 0;
    if (Math.abs(estimate - messages) > messages / 10)
      throw new Error(`operations: ${estimate} pending of ${messages}`);
    const size = quick ? "1m" : "10m";
    const note = `median of ${SCRAPES}; ${messages.toLocaleString("en-US")} messages in the log, all pending for one relay${quick ? "; the full form has ten times as many" : ""}`;
    report.figure(`scrape_ms_${size}`, median(times), "ms", note);
    report.figure(`scrape_p99_ms_${size}`, quantile(times, 0.99), "ms");
    const cpu = (serverMs ?? Number.NaN) / SCRAPES + (user + system) / 1000 / SCRAPES;
    if (!Number.isNaN(cpu))
      report.figure(`scrape_cpu_ms_${size}`, cpu, "ms", "CPU time of a scrape, server and client: for busy machines");
  } finally {
    await pool.end();
  }
}
