import type { Context } from "../lib/context.ts";
import { countRows } from "../lib/business.ts";
import type { Player } from "../lib/player.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";
import { SHAPES } from "../lib/shapes.ts";
import type { Shape } from "../lib/shapes.ts";
import { median } from "../lib/stats.ts";

export const summary = "transactions that write an order and enqueue, against a hand-written INSERT";

const CONNECTIONS = 8;
/** So short that what else the machine does hits both sides of a pair alike. */
const SLICE_MS = 250;
const GOAL = "≥ 0.95";
const SETTINGS = {
  quick: { messages: 20_000, seconds: 6, hundreds: { count: 2, budgetMs: 2000 } },
  full: { messages: 1_000_000, seconds: 60, hundreds: { count: 8, budgetMs: 30_000 } },
};
const WARM_UP_MS = 1500;

type Side = Awaited<ReturnType<typeof contender>>;

export async function run(context: Context): Promise<void> {
  const { report } = context;
  const { messages, seconds, hundreds } = context.quick ? SETTINGS.quick : SETTINGS.full;
  const pairs: { shape: Shape; txbox: Side; hand: Side }[] = [];
  for (const shape of SHAPES) {
    context.say(`enqueue: ${messages.toLocaleString("en-US")} messages on either side, ${shape}`);
    const txbox = await contender(context, "txbox", shape, messages);
    pairs.push({ shape, txbox, hand: await contender(context, "hand-written", shape, messages) });
  }
  // What the filling left to be written must not fall into the measurement of either side.
  await context.checkpoint();
  for (const { txbox, hand } of pairs) for (const side of [txbox, hand]) await side.warmUp();

  context.say(`enqueue: measuring for ${seconds} s`);
  const slices = Math.ceil((seconds * 1000) / (SLICE_MS * pairs.length * 2));
  for (let i = 0; i < slices; i++) {
    for (const { txbox, hand } of pairs) for (const side of turn(i, txbox, hand)) await side.slice();
  }
  const ratios = pairs.map(({ shape, txbox, hand }) => {
    for (const [name, side] of [
      [`enqueue_txbox_${shape}`, txbox],
      [`enqueue_hand_${shape}`, hand],
    ] as const) {
      report.rate(name, side.rates, "tx/s", `${CONNECTIONS} connections, one message each`);
      if (side.cpu.length > 0) report.figure(`${name}_server_cpu`, median(side.cpu), "µs/tx", "median of the slices");
    }
    return report.pairedRatio(`enqueue_${shape}_vs_hand`, txbox.rates, hand.rates, GOAL);
  });
  const worst = pairs[ratios.indexOf(Math.min(...ratios))]!;
  report.pairedRatio("enqueue_vs_hand", worst.txbox.rates, worst.hand.rates, GOAL);

  const [plain] = pairs;
  const ms = context.quick ? 300 : 2000;
  const results = await interleave(hundreds, {
    txbox_100: { run: () => plain!.txbox.loop(100, ms) },
    hand_100: { run: () => plain!.hand.loop(100, ms) },
  });
  for (const [name, rounds] of Object.entries(results))
    report.rate(`enqueue_${name}`, rounds, "tx/s", `${CONNECTIONS} connections, 100 messages each`);
  report.ratio("enqueue_100_vs_hand_100", "enqueue_txbox_100", "enqueue_hand_100");
  for (const { txbox, hand } of pairs) await Promise.all([txbox.check(), hand.check()]);
}

/** Neither side always goes first. */
function turn<T>(i: number, a: T, b: T): [T, T] {
  return i % 2 === 0 ? [a, b] : [b, a];
}

async function contender(context: Context, name: "txbox" | "hand-written", shape: Shape, aged: number) {
  const player: Player = context.player(name, await context.database());
  await player.setup();
  await player.age(aged, shape);
  let transactions = 0;
  let messages = aged;
  const rates: number[] = [];
  const cpu: number[] = [];
  async function once(batch: number, ms: number) {
    const result = await player.enqueueLoop({ connections: CONNECTIONS, ms, batch, shape });
    transactions += result.transactions;
    messages += result.transactions * batch;
    return result;
  }
  const rateOf = (result: { transactions: number; ms: number }): number => (result.transactions * 1000) / result.ms;
  return {
    rates,
    cpu,
    async warmUp(): Promise<void> {
      await once(1, WARM_UP_MS);
    },
    async slice(): Promise<void> {
      const result = await once(1, SLICE_MS);
      rates.push(rateOf(result));
      if (result.serverCpuMs !== undefined) cpu.push((result.serverCpuMs * 1000) / result.transactions);
    },
    loop: async (batch: number, ms: number): Promise<number> => rateOf(await once(batch, ms)),
    async check(): Promise<void> {
      mustEqual(`enqueue by ${name}, orders`, await countRows(player.url, "orders"), transactions);
      mustEqual(`enqueue by ${name}, messages`, await player.stored(), messages);
    },
  };
}
