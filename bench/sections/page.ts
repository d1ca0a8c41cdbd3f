import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";
import { createAdmin, toNodeHandler } from "../../src/admin/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import type { Context } from "../lib/context.ts";
import type { Player } from "../lib/player.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";

export const summary = "the relay at full speed while a page is open";

const MESSAGES = { quick: 300_000, full: 1_000_000 };
const ROUNDS = { quick: { count: 4, budgetMs: 40_000 }, full: { count: 12, budgetMs: 300_000 } };

/** A relay drains the same log again and again; by turns, a page over its store is open or not. */
export async function run(context: Context): Promise<void> {
  const { quick, report } = context;
  const messages = quick ? MESSAGES.quick : MESSAGES.full;
  const url = await context.database();
  const player = context.player("txbox", url);
  await player.setup();
  context.say(`page: filling ${messages} messages`);
  await player.fill(messages);
  const pool = new pg.Pool({ connectionString: url, max: 5 });
  const admin = createAdmin({ stores: { shop: createPostgresStore({ client: pool }) } });
  const handle = toNodeHandler(admin);
  const server = createServer((request, response) => void handle(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const live = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api/live`;
  let looks = 0;
  const rate = async (): Promise<number> => drainRate(player, messages);
  const openRate = async (): Promise<number> => {
    const page = await openPage(live);
    try {
      return await rate();
    } finally {
      looks += await page.close();
    }
  };
  try {
    context.say("page: warming up");
    await rate();
    await openRate();
    looks = 0;
    context.say("page: draining with and without a page");
    // In the order a, b, b, a: neither is always the first.
    const results = await interleave(quick ? ROUNDS.quick : ROUNDS.full, {
      without: { run: rate },
      with: { run: openRate },
      with_again: { run: openRate },
      without_again: { run: rate },
    });
    const [open, closed] = [
      [...results.with, ...results.with_again],
      [...results.without, ...results.without_again],
    ];
    if (looks < open.length) throw new Error(`page: only ${looks} looks in ${open.length} rounds`);
    report.rate("drain_with_page", open, "msg/s", `${looks} looks at the store`);
    report.rate("drain_without_page", closed, "msg/s");
    report.ratioOfMedians("drain_with_page", open, closed, "≥ 0.97");
  } finally {
    await admin.close();
    server.close();
    server.closeAllConnections();
    await pool.end();
  }
}

/** What a browser keeps open; `close` gives how many overviews came. */
async function openPage(live: string): Promise<{ close(): Promise<number> }> {
  const page = new AbortController();
  const response = await fetch(live, { signal: page.signal });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let heard = 0;
  const reading = (async (): Promise<void> => {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard += value.split("event: overview").length - 1;
    }
  })().catch(() => undefined);
  return {
    async close() {
      page.abort();
      await reading;
      return heard;
    },
  };
}

async function drainRate(player: Player, messages: number): Promise<number> {
  const { handled, left, ms } = await player.drain({ messages, batch: 1000 });
  mustEqual("page: drain, messages handled", handled, messages);
  mustEqual("page: drain, messages left", left, 0);
  return (messages * 1000) / ms;
}
