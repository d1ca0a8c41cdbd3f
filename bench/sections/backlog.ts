import pg from "pg";
import type { Context } from "../lib/context.ts";
import type { Player } from "../lib/player.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";
import type { Rounds } from "../lib/rounds.ts";
import { median } from "../lib/stats.ts";
import { withClient } from "../lib/with-client.ts";

export const summary = "a million messages of backlog against ten thousand; memory; a transaction held open elsewhere";

const BIG = 1_000_000;
const SMALL = 10_000;
const BATCH = 1000;
/** The million goes in parts, and between two of them the small one has its turn. */
const PART = 100_000;
/** A drain of 10,000 is over in milliseconds: its turn is the median of so many. */
const SMALL_REPEATS = 3;
/** Of a quick run, for the part with a transaction held open. */
const HELD_MS = 2000;

export async function run(context: Context): Promise<void> {
  const { report } = context;
  const urls = { big: await context.database(), small: await context.database() };
  context.say(`backlog: filling ${BIG} and ${SMALL} messages`);
  await fill(context, urls.big, BIG);
  await fill(context, urls.small, SMALL);
  const big = context.player("txbox", urls.big);
  const small = context.player("txbox", urls.small);
  const memory = async (player: Player): Promise<number> => (await player.usage()).maxRssBytes / 2 ** 20;
  report.figure("backlog_rss_start", await memory(big), "MiB", "relay process, before the first message");

  context.say("backlog: warming up");
  for (let i = 0; i < 10; i += 1) await steadyRate(small, SMALL);
  await steadyRate(big, PART, "warm-up");
  context.say("backlog: measuring");
  const free = await interleave(parts(context.msLeft() - HELD_MS), {
    small: { run: () => smallTurn(small) },
    big: { run: () => steadyRate(big, PART, "free") },
  });
  report.rate("backlog_10k", free.small, "msg/s", `batch ${BATCH}, from first to last page`);
  report.rate("backlog_1m", free.big, "msg/s", `batch ${BATCH}, from first to last page; ${part(free.big)}`);
  report.figure("backlog_rss", await memory(big), "MiB", "highest, relay process; goal < 200");

  context.say("backlog: with a transaction held open elsewhere");
  const held = await holdTransaction(urls.big);
  const pinned = await interleave(parts(context.msLeft()), { big: { run: () => steadyRate(big, PART, "held") } });
  await held.end();
  report.rate("backlog_1m_held", pinned.big, "msg/s", `with a transaction open elsewhere; ${part(pinned.big)}`);
  report.figure("backlog_rss_held", await memory(big), "MiB", "highest, relay process; goal < 200");
  await big.stop();
  await reportTuples(context, urls.big);
  report.ratio("backlog_1m_vs_10k", "backlog_1m", "backlog_10k", "≥ 0.85");
  report.ratio("backlog_1m_held_vs_free", "backlog_1m_held", "backlog_1m", "≥ 0.85");
}

/** All of the backlog, or as much as the time allows. */
function parts(budgetMs: number): Rounds {
  return { count: BIG / PART, budgetMs };
}

function part(rounds: readonly number[]): string {
  return rounds.length * PART === BIG ? "drained in full" : `${rounds.length * PART} of ${BIG} drained`;
}

async function fill(context: Context, url: string, messages: number): Promise<void> {
  const writer = context.player("txbox", url);
  await writer.setup();
  await writer.fill(messages);
  await writer.stop();
}

async function smallTurn(player: Player): Promise<number> {
  const rates: number[] = [];
  for (let i = 0; i < SMALL_REPEATS; i += 1) rates.push(await steadyRate(player, SMALL));
  return median(rates);
}

/** Without a relay's name all of the log, as a new relay. */
async function steadyRate(player: Player, messages: number, relay?: string): Promise<number> {
  const options = { messages, batch: BATCH, ...(relay === undefined ? {} : { relay }) };
  const { handled, steady } = await player.drain(options);
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
async function reportTuples({ report }: Context, url: string): Promise<void> {
  await withClient(url, async (client) => {
    const { rows } = await client.query<{ dead: string; changed: string }>(
      `select sum(n_dead_tup) as dead, sum(n_tup_upd + n_tup_del) as changed from pg_stat_user_tables
       where schemaname = 'txbox' and relname like 'message%'`,
    );
    report.figure("backlog_dead_tuples", Number(rows[0]?.dead), "rows", "message table; goal 0");
    report.figure("backlog_changed_rows", Number(rows[0]?.changed), "rows", "message table, updated or deleted");
  });
}
