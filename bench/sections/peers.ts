import type { ContestantName } from "../contestants/index.ts";
import type { Context } from "../lib/context.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";

export const summary = "the peers alone: what each drains at its best settings";

interface PreparedPeer {
  key: string;
  note: string;
  /** Fills and drains once; messages per second. */
  drain: () => Promise<number>;
}

/** Fewer messages for those that are slower, so that each round takes about as long. */
function peer(name: ContestantName, key: string, messages: { quick: number; full: number }, exact = true) {
  return {
    async prepare(context: Context): Promise<PreparedPeer> {
      const count = context.quick ? messages.quick : messages.full;
      const player = context.player(name, await context.database());
      await player.setup();
      return {
        key,
        note: `any order, ${count} messages`,
        async drain() {
          await player.fill(count);
          const { handled, left, ms } = await player.drain({ messages: count });
          mustEqual(`drain by ${name}, messages left`, left, 0);
          mustEqual(`drain by ${name}, messages handled`, exact ? handled : Math.min(handled, count), count);
          return (count * 1000) / ms;
        },
      };
    },
  };
}

export const PEERS = [
  peer("graphile-worker", "graphile", { quick: 30_000, full: 100_000 }),
  peer("pg-boss", "pg_boss", { quick: 20_000, full: 50_000 }),
  // It hands a message out again when its short lock runs out, so a repeat is no error here.
  peer("pg-transactional-outbox", "pg_transactional_outbox", { quick: 800, full: 2000 }, false),
];

export async function run(context: Context): Promise<void> {
  const peers = await Promise.all(PEERS.map((peer) => peer.prepare(context)));
  context.say("peers: measuring");
  const results = await interleave(
    context.quick ? { count: 3, budgetMs: 15_000 } : { count: 5, budgetMs: 300_000 },
    Object.fromEntries(peers.map(({ key, drain }) => [key, { run: drain }])),
  );
  for (const { key, note } of peers) context.report.rate(`drain_${key}`, results[key] ?? [], "msg/s", note);
}
