import type { ContestantName } from "../contestants/index.ts";
import { createBusinessTable } from "../lib/business.ts";
import type { Context } from "../lib/context.ts";
import { orderSql } from "../lib/payload.ts";
import type { Player } from "../lib/player.ts";
import { meterBackends } from "../lib/server-cpu.ts";
import { median, quantile } from "../lib/stats.ts";
import { withClient } from "../lib/with-client.ts";
import { idleCpu, measureWaits } from "./latency.ts";

export const summary = "polling against the server's log: commit to handler, CPU, idle, bulk";

/** The relay's connections, told apart from those of the writers. */
const RELAY = "bench-relay";
const BULK = 60_000;
const PER_TRANSACTION = 100;

interface Side {
  readonly key: "polling" | "wal";
  readonly relay: Player;
  readonly writer: Player;
  readonly waits: number[][];
  readonly cpu: number[];
}

export async function run(context: Context): Promise<void> {
  const sides = [await prepare(context, "polling", "txbox"), await prepare(context, "wal", "txbox-wal")];
  const rounds = context.quick ? 2 : 4;
  const seconds = context.quick ? 2 : 6;
  // By turns, so that what else the machine does meets both.
  for (let round = 1; round <= rounds; round++) {
    for (const side of sides) {
      context.say(`wal: ${side.key}, 1,000 messages a second, round ${round} of ${rounds}`);
      // Each round has numbers of its own.
      await side.relay.listen();
      const meter = await meterBackends(context.server.url, side.relay.url, RELAY);
      const before = (await side.relay.usage()).cpuMs;
      side.waits.push(await measureWaits(side.relay, side.writer, seconds));
      const serverMs = (await meter.stop()) ?? 0;
      side.cpu.push(((await side.relay.usage()).cpuMs - before + serverMs) / seconds);
      await side.relay.hush();
    }
  }
  const { report } = context;
  for (const { key, waits, cpu, relay } of sides) {
    report.figure(`${key}_p50_ms`, median(waits.map((some) => quantile(some, 0.5))), "ms", "commit to handler");
    report.figure(`${key}_p99_ms`, median(waits.map((some) => quantile(some, 0.99))), "ms", "commit to handler");
    report.figure(`${key}_cpu`, median(cpu), "µs a message", "client and its connections at 1,000 a second");
    context.say(`wal: ${key}, idle`);
    await relay.listen();
    const idle = await idleCpu(context, relay, context.quick ? 3000 : 10_000);
    report.figure(`${key}_idle`, idle.client + (idle.server ?? 0), "% of a core");
    await relay.hush();
  }
  report.ratioOfMedians("wal_cpu_vs_polling", sides[1]!.cpu, sides[0]!.cpu, "≤ 0.67");
  await bulk(context);
}

async function prepare(context: Context, key: Side["key"], name: ContestantName): Promise<Side> {
  const url = await context.database();
  const [relay, writer] = [context.player(name, `${url}?application_name=${RELAY}`), context.player(name, url)];
  await writer.setup();
  await createBusinessTable(url);
  return { key, relay, writer, waits: [], cpu: [] };
}

/** While it is written as fast as one session can, by transactions of 100; the bare stream by turns. */
async function bulk(context: Context): Promise<void> {
  const url = await context.database();
  const [product, bare] = [context.player("txbox-wal", url), context.player("bare-stream", url)];
  await product.setup();
  const rates: { product: number[]; bare: number[] } = { product: [], bare: [] };
  for (let round = 1; round <= (context.quick ? 1 : 3); round++) {
    for (const [key, player] of [
      ["bare", bare],
      ["product", product],
    ] as const) {
      context.say(`wal: ${key === "bare" ? "a bare stream" : "txbox"}, ${BULK} messages, round ${round}`);
      await player.listen();
      const heard = player.hear(BULK);
      await write(url);
      rates[key].push((BULK * 1000) / (await heard));
      await player.hush();
    }
  }
  context.report.rate("wal_bulk", rates.product, "msg/s");
  context.report.rate("wal_bare", rates.bare, "msg/s", "a reader that only counts");
  context.report.ratioOfMedians("wal_bulk_vs_bare", rates.product, rates.bare, "≥ 0.85");
}

async function write(url: string): Promise<void> {
  await withClient(url, (client) =>
    client.query(`do $do$ begin
      for i in 1..${BULK / PER_TRANSACTION} loop
        insert into txbox.message (id, size, lane, stream, type, key, aggregate_type, aggregate_id, headers, payload)
          select gen_random_uuid(), 270, n % 64, 'orders', 'order_created', 'k' || n, 'order', 'k' || n, '{"schemaVersion":1}', ${orderSql("n::bigint")}
          from generate_series(1, ${PER_TRANSACTION}) n;
        commit;
      end loop;
    end $do$`),
  );
}
