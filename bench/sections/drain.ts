import type { Context } from "../lib/context.ts";
import type { Player } from "../lib/player.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";
import type { Entry } from "../lib/rounds.ts";
import { PEERS } from "./peers.ts";

export const summary = "drain a backlog to a publisher that does nothing, against the raw read and the peers";

/** Messages for txbox and the raw limit, in order. */
const MESSAGES = { quick: 300_000, full: 1_000_000 };
const ROUNDS = { quick: { count: 6, budgetMs: 11_500 }, full: { count: 10, budgetMs: 300_000 } };
/** The peers fill anew before each drain: they take part in some rounds only, the one that counts in more. */
const PEERS_EVERY = { quick: 6, full: 2 };
const GRAPHILE_EVERY = 2;

export async function run(context: Context): Promise<void> {
  const { quick, report } = context;
  const messages = quick ? MESSAGES.quick : MESSAGES.full;
  const url = await context.database();
  const txbox = context.player("txbox", url);
  const raw = context.player("raw", url);
  await txbox.setup();
  context.say(`drain: filling ${messages} messages`);
  await txbox.fill(messages);
  const peers = await Promise.all(PEERS.map((peer) => peer.prepare(context)));

  const entries: Record<string, Entry> = {};
  for (const batch of [1000, 100]) {
    // Small pages take long.
    const every = batch === 100 ? (quick ? 6 : 2) : 1;
    entries[`txbox_${batch}`] = { run: () => rate(txbox, messages, batch), every };
    entries[`raw_${batch}`] = { run: () => rate(raw, messages, batch), every };
  }
  for (const peer of peers) {
    const every = peer.key === "graphile" ? GRAPHILE_EVERY : quick ? PEERS_EVERY.quick : PEERS_EVERY.full;
    entries[peer.key] = { run: peer.drain, every };
  }

  context.say("drain: warming up");
  await rate(txbox, messages, 1000);
  await rate(raw, messages, 1000);
  context.say("drain: measuring");
  const results = await interleave(quick ? ROUNDS.quick : ROUNDS.full, entries);
  for (const [name, rounds] of Object.entries(results)) {
    const peer = peers.find(({ key }) => key === name);
    report.rate(`drain_${name}`, rounds, "msg/s", peer?.note ?? "in order");
  }
  report.ratio("drain_vs_raw", "drain_txbox_1000", "drain_raw_1000", "≥ 0.5, stretch 0.8");
  report.ratio("drain_100_vs_raw_100", "drain_txbox_100", "drain_raw_100");
  report.ratio("drain_vs_graphile", "drain_txbox_1000", "drain_graphile", "≥ 10, stretch 25");
  report.ratio("drain_vs_pg_boss", "drain_txbox_1000", "drain_pg_boss");
  report.ratio("drain_vs_pg_transactional_outbox", "drain_txbox_1000", "drain_pg_transactional_outbox");
}

async function rate(player: Player, messages: number, batch: number): Promise<number> {
  const { handled, left, ms } = await player.drain({ messages, batch });
  mustEqual(`drain by ${player.name}, messages handled`, handled, messages);
  mustEqual(`drain by ${player.name}, messages left`, left, 0);
  return (messages * 1000) / ms;
}
