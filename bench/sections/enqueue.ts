import type { Context } from "../lib/context.ts";
import { countRows } from "../lib/business.ts";
import type { Player } from "../lib/player.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";

export const summary = "transactions that write an order and enqueue, against a hand-written INSERT";

const CONNECTIONS = 8;
const ROUNDS = { quick: { count: 6, budgetMs: 6000 }, full: { count: 8, budgetMs: 300_000 } };
/** The ratio that counts is that of one message each: a quick run has more of those, and compiled code for them. */
const HUNDREDS_EVERY = { quick: 3, full: 1 };
const WARM_UP_MS = { 1: 600, 100: 150 };

export async function run(context: Context): Promise<void> {
  const { quick, report } = context;
  const txbox = await contender(context, "txbox");
  const hand = await contender(context, "hand-written");
  const ms = quick ? 300 : 2000;

  context.say("enqueue: warming up");
  for (const side of [txbox, hand]) for (const batch of [1, 100] as const) await side.loop(batch, WARM_UP_MS[batch]);
  context.say("enqueue: measuring");
  const every = quick ? HUNDREDS_EVERY.quick : HUNDREDS_EVERY.full;
  const results = await interleave(quick ? ROUNDS.quick : ROUNDS.full, {
    txbox: { run: () => txbox.loop(1, ms) },
    hand: { run: () => hand.loop(1, ms) },
    txbox_100: { run: () => txbox.loop(100, ms), every },
    hand_100: { run: () => hand.loop(100, ms), every },
  });
  await Promise.all([txbox.check(), hand.check()]);
  const notes = { txbox: 1, hand: 1, txbox_100: 100, hand_100: 100 };
  for (const [name, batch] of Object.entries(notes)) {
    const rounds = results[name as keyof typeof results];
    report.rate(`enqueue_${name}`, rounds, "tx/s", `${CONNECTIONS} connections, ${batch} messages each`);
  }
  report.ratio("enqueue_vs_hand", "enqueue_txbox", "enqueue_hand", "≥ 0.9");
  report.ratio("enqueue_100_vs_hand_100", "enqueue_txbox_100", "enqueue_hand_100");
}

async function contender(context: Context, name: "txbox" | "hand-written") {
  const player: Player = context.player(name, await context.database());
  await player.setup();
  let transactions = 0;
  let messages = 0;
  return {
    async loop(batch: number, ms: number): Promise<number> {
      const result = await player.enqueueLoop({ connections: CONNECTIONS, ms, batch });
      transactions += result.transactions;
      messages += result.transactions * batch;
      return (result.transactions * 1000) / result.ms;
    },
    async check(): Promise<void> {
      mustEqual(`enqueue by ${name}, orders`, await countRows(player.url, "orders"), transactions);
      mustEqual(`enqueue by ${name}, messages`, await player.stored(), messages);
    },
  };
}
