import pg from "pg";
import type { Context } from "../lib/context.ts";
import type { Player } from "../lib/player.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";
import { median } from "../lib/stats.ts";
import { withClient } from "../lib/with-client.ts";

export const summary = "a million messages of backlog against ten thousand; memory; a transaction held open elsewhere";

const BIG = 1_000_000;
const SMALL = 10_000;
const BATCH = 1000;
/** A drain of 10,000 is over in milliseconds: a round is the median of so many. */
const SMALL_REPEATS = 15;
const ROUNDS = { quick: { count: 2, budgetMs: 5000 }, full: { count: 5, budgetMs: 300_000 } };

export async function run(context: Context): Promise<void> {
  const { quick, report } = context;
  const rounds = quick ? ROUNDS.quick : ROUNDS.full;
  const urls = { big: await context.database(), small: await context.database() };
  context.say(`backlog: filling ${BIG} and ${SMALL} messages`);
  for (const [url, messages] of [
    [urls.big, BIG],
    [urls.small, SMALL],
  ] as const) {
    const writer = context.player("txbox", url);
    await writer.setup();
    await writer.fill(messages);
    await writer.stop();
  }
  const big = context.player("txbox", urls.big);
  const small = context.player("txbox", urls.small);
  const smallRound = async (): Promise<number> => {
    const rates: number[] = [];
    for (let i = 0; i < SMALL_REPEATS; i += 1) rates.push(await steadyRate(small, SMALL));
    return median(rates);
  };

  report.figure(
    "backlog_rss_start",
    (await big.usage()).maxRssBytes / 2 ** 20,
    "MiB",
    "relay process, before the first message",
  );
  context.say("backlog: warming up");
  await smallRound();
  if (!quick) await steadyRate(big, BIG);
  context.say("backlog: measuring");
  const free = await interleave(rounds, { small: smallRound, big: () => steadyRate(big, BIG) });
  report.rate("backlog_10k", free.small, "msg/s", `batch ${BATCH}, from first to last page`);
  report.rate("backlog_1m", free.big, "msg/s", `batch ${BATCH}, from first to last page`);
  report.figure("backlog_rss", (await big.usage()).maxRssBytes / 2 ** 20, "MiB", "highest, relay process; goal < 200");
  await big.stop();
  await reportTuples(context, urls.big, "backlog");

  context.say("backlog: with a transaction held open elsewhere");
  const held = await holdTransaction(urls.big);
  const relay = context.player("txbox", urls.big);
  const pinned = await interleave(rounds, { big: () => steadyRate(relay, BIG) });
  await held.end();
  report.rate("backlog_1m_held", pinned.big, "msg/s", "a transaction with a snapshot and an xid is open");
  report.figure("backlog_rss_held", (await relay.usage()).maxRssBytes / 2 ** 20, "MiB", "highest, relay process");
  await relay.stop();
  await reportTuples(context, urls.big, "backlog_held");
  report.ratio("backlog_1m_vs_10k", "backlog_1m", "backlog_10k", "≥ 0.85");
  report.ratio("backlog_1m_held_vs_free", "backlog_1m_held", "backlog_1m", "≥ 0.85");
}

async function steadyRate(player: Player, messages: number): Promise<number> {
  const { handled, steady } = await player.drain({ messages, batch: BATCH });
  mustEqual(`backlog of ${messages}, messages handled`, handled, messages);
  return steady ?? Number.NaN;
}

async function holdTransaction(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query("begin isolation level repeatable read");
  await client.query("insert into orders (id, customer, total) values (gen_random_uuid(), 'held', 1)");
  return client;
}

/** What relays that have ended did to the rows of the log, which should never be updated or deleted. */
async function reportTuples({ report }: Context, url: string, prefix: string): Promise<void> {
  await withClient(url, async (client) => {
    const { rows } = await client.query<{ dead: string; changed: string }>(
      `select sum(n_dead_tup) as dead, sum(n_tup_upd + n_tup_del) as changed from pg_stat_user_tables
       where schemaname = 'txbox' and relname like 'message%'`,
    );
    report.figure(`${prefix}_dead_tuples`, Number(rows[0]?.dead), "rows", "message table; goal 0");
    report.figure(`${prefix}_changed_rows`, Number(rows[0]?.changed), "rows", "message table, updated or deleted");
  });
}
