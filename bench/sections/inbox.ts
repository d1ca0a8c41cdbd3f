import { countRows } from "../lib/business.ts";
import type { Context } from "../lib/context.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";

export const summary = "receipt, handler and commit in one transaction, against the same written by hand";

const CONNECTIONS = 8;
const ROUNDS = { quick: { count: 6, budgetMs: 3000 }, full: { count: 8, budgetMs: 300_000 } };

export async function run(context: Context): Promise<void> {
  const { quick, report } = context;
  const txbox = await contender(context, "txbox");
  const hand = await contender(context, "hand-written");
  const ms = quick ? 250 : 2000;

  context.say("inbox: warming up");
  await txbox.loop(200);
  await hand.loop(200);
  context.say("inbox: measuring");
  const results = await interleave(quick ? ROUNDS.quick : ROUNDS.full, {
    txbox: { run: () => txbox.loop(ms) },
    hand: { run: () => hand.loop(ms) },
  });
  await Promise.all([txbox.check(), hand.check()]);
  report.rate("inbox_txbox", results.txbox, "msg/s", `inline, ${CONNECTIONS} at a time`);
  report.rate("inbox_hand", results.hand, "msg/s", `receipt and order by hand, ${CONNECTIONS} at a time`);
  report.ratio("inbox_vs_hand", "inbox_txbox", "inbox_hand", "≥ 0.9");
}

async function contender(context: Context, name: "txbox" | "hand-written") {
  const player = context.player(name, await context.database());
  await player.setup();
  let messages = 0;
  return {
    async loop(ms: number): Promise<number> {
      const result = await player.receiveLoop({ connections: CONNECTIONS, ms });
      messages += result.transactions;
      return (result.transactions * 1000) / result.ms;
    },
    async check(): Promise<void> {
      mustEqual(`inbox by ${name}, orders`, await countRows(player.url, "orders"), messages);
    },
  };
}
