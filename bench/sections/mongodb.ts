import { MongoClient } from "mongodb";
import { startMongodb } from "../../test/harness/index.ts";
import type { Context } from "../lib/context.ts";
import {
  drainByHand,
  drainByTxbox,
  drainOneAtATime,
  type Documents,
  fillDone,
  fillSeed,
  fillTxbox,
  resetSeed,
  resetTxbox,
} from "../lib/mongodb-rounds.ts";
import { interleave, mustEqual } from "../lib/rounds.ts";

export const summary = "drain MongoDB: batches against one document at a time, and against batches by hand";

const MESSAGES = { quick: 10_000, full: 50_000 };
const ONE_BY_ONE = { quick: 500, full: 2000 };
const DONE = { quick: 50_000, full: 1_000_000 };
const ROUNDS = { quick: { count: 3, budgetMs: 15_000 }, full: { count: 5, budgetMs: 200_000 } };

export async function run(context: Context): Promise<void> {
  const { quick, report } = context;
  const of = <T>(sizes: { quick: T; full: T }): T => (quick ? sizes.quick : sizes.full);
  const messages = of(MESSAGES);
  await using server = await startMongodb({ owned: true, cacheGb: 2 });
  const client = new MongoClient(server.url);
  try {
    const collection = (name: string): Documents => client.db().collection(name);
    const [outbox, byHand, oneByOne] = [collection("outbox"), collection("by_hand"), collection("one_by_one")];
    context.say(`mongodb: filling ${messages} messages`);
    await fillTxbox(client, "outbox", messages);
    await fillSeed(outbox, byHand, messages);
    await fillSeed(outbox, oneByOne, of(ONE_BY_ONE));

    const rate = async (expected: number, drain: () => Promise<{ handled: number; ms: number }>): Promise<number> => {
      const { handled, ms } = await drain();
      mustEqual("mongodb, messages handled", handled, expected);
      return (handled * 1000) / ms;
    };
    const txbox = async (): Promise<number> => {
      await resetTxbox(outbox);
      return rate(messages, () => drainByTxbox(client, "outbox"));
    };
    const entries = {
      txbox: { run: txbox },
      hand: {
        async run() {
          await resetSeed(byHand);
          return rate(messages, () => drainByHand(byHand));
        },
      },
      one_at_a_time: {
        async run() {
          await resetSeed(oneByOne);
          return rate(of(ONE_BY_ONE), () => drainOneAtATime(oneByOne));
        },
      },
    };
    context.say("mongodb: measuring");
    const results = await interleave(of(ROUNDS), entries);
    for (const [name, rounds] of Object.entries(results)) report.rate(`mongodb_drain_${name}`, rounds, "msg/s");
    report.ratio("mongodb_drain_vs_one_at_a_time", "mongodb_drain_txbox", "mongodb_drain_one_at_a_time", "≥ 10");
    report.ratio("mongodb_drain_vs_hand", "mongodb_drain_txbox", "mongodb_drain_hand", "≥ 0.5");

    context.say(`mongodb: filling ${of(DONE)} documents that are done`);
    await fillDone(outbox, of(DONE));
    const among = [];
    for (let round = 0; round < results.txbox.length; round++) among.push(await txbox());
    report.rate("mongodb_drain_among_done", among, "msg/s", `${of(DONE)} done documents in the collection`);
    report.ratio("mongodb_drain_among_done_vs_alone", "mongodb_drain_among_done", "mongodb_drain_txbox", "about 1");
  } finally {
    await client.close();
  }
}
