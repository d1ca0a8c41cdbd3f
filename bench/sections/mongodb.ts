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
import { drainByStream, fillForStream, readBareStream } from "../lib/mongodb-stream-rounds.ts";
import { interleave, mustEqual, type Rounds } from "../lib/rounds.ts";

export const summary =
  "drain MongoDB: batches against one document at a time and against batches by hand; by change stream against the bare stream";

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
    await measureStream(context, client, messages, of(ROUNDS));
  } finally {
    await client.close();
  }
}

/** Fresh messages for every round: what was reset would come by the stream as updates. */
async function measureStream(
  { report, say }: Context,
  client: MongoClient,
  messages: number,
  rounds: Rounds,
): Promise<void> {
  say("mongodb: measuring the change stream");
  let round = 0;
  let filled: Awaited<ReturnType<typeof fillForStream>>;
  const results = await interleave(rounds, {
    stream_bare: {
      async run() {
        filled = await fillForStream(client, `stream_${++round}`, messages);
        const { handled, ms } = await readBareStream(client, `stream_${round}`, filled);
        mustEqual("mongodb, messages of the bare stream", handled, messages);
        return (handled * 1000) / ms;
      },
    },
    stream_txbox: {
      async run() {
        const { handled, ms, from } = await drainByStream(client, `stream_${round}`);
        mustEqual("mongodb, messages by the stream", handled, messages);
        if (from !== "resume") throw new Error(`the stream did not go on from where it was: ${from}`);
        return (handled * 1000) / ms;
      },
    },
  });
  for (const [name, rates] of Object.entries(results)) report.rate(`mongodb_${name}`, rates, "msg/s");
  report.ratio("mongodb_stream_vs_bare", "mongodb_stream_txbox", "mongodb_stream_bare", "≥ 0.5");
}
