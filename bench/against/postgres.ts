import { createBusinessTable } from "../lib/business.ts";
import type { Player } from "../lib/player.ts";
import { mustEqual } from "../lib/rounds.ts";
import { SHAPES } from "../lib/shapes.ts";
import { quantile } from "../lib/stats.ts";
import { idleCpu, measureWaits } from "../sections/latency.ts";
import { compare } from "./sides.ts";
import type { Side, Sides } from "./sides.ts";

const CONNECTIONS = 8;

export async function compareDrain(sides: Sides): Promise<void> {
  const { context } = sides;
  const messages = context.quick ? 300_000 : 1_000_000;
  context.say(`drain: filling ${messages} messages on either side`);
  const players = new Map<Side, Player>();
  for (const side of [sides.this, sides.older]) {
    const player = side.player("txbox", await context.database());
    players.set(side, player);
    await player.setup();
    await player.fill(messages);
  }
  await context.checkpoint();
  for (const batch of [1000, 100]) {
    const rounds = context.quick ? { count: 10, budgetMs: batch === 100 ? 20_000 : 12_000 } : FULL;
    context.say(`drain: measuring pages of ${batch}`);
    await compare(sides, rounds, { [`drain_${batch}`]: { unit: "msg/s" } }, async (side) => {
      const measure = async (): Promise<Record<string, number>> => {
        const { handled, left, ms } = await players.get(side)!.drain({ messages, batch });
        mustEqual(`drain by ${side.name}, messages handled`, handled, messages);
        mustEqual(`drain by ${side.name}, messages left`, left, 0);
        return { [`drain_${batch}`]: (messages * 1000) / ms };
      };
      // What is compiled while it runs.
      await measure();
      return measure;
    });
  }
}

const FULL = { count: 20, budgetMs: 120_000 };

export async function compareEnqueue(sides: Sides): Promise<void> {
  const { context } = sides;
  const { quick } = context;
  const aged = quick ? 20_000 : 1_000_000;
  for (const shape of SHAPES) {
    context.say(`enqueue: ${aged} messages on either side, ${shape}`);
    const batches = shape === "plain" ? [1, 100] : [1];
    const players = new Map<Side, Player>();
    for (const side of [sides.this, sides.older]) {
      const player = side.player("txbox", await context.database());
      players.set(side, player);
      await player.setup();
      await player.age(aged, shape);
    }
    await context.checkpoint();
    for (const batch of batches) {
      const figure = batch === 1 ? `enqueue_${shape}` : `enqueue_${batch}`;
      context.say(`${figure.replace("_", ": ")}: measuring`);
      const seconds = quick ? 4 : 30;
      // So short that what else the machine does hits both sides of a pair alike.
      const rounds = { count: seconds * 2, budgetMs: seconds * 1000 };
      await compare(sides, rounds, { [figure]: { unit: "tx/s" } }, async (side) => {
        const player = players.get(side)!;
        const loop = (ms: number) => player.enqueueLoop({ connections: CONNECTIONS, ms, batch, shape });
        await loop(1500);
        return async () => {
          const { transactions, ms } = await loop(250);
          return { [figure]: (transactions * 1000) / ms };
        };
      });
    }
    await context.clear();
  }
}

/** Commit to handler, and the CPU time of a relay with nothing to do: of its process and of its connections. */
export async function compareLatency(sides: Sides): Promise<void> {
  const { context } = sides;
  const seconds = context.quick ? 2 : 5;
  const ms = { unit: "ms", lessIsBetter: true };
  const scales = { latency_p50: ms, latency_p99: ms, idle: { unit: "% of a core", lessIsBetter: true } };
  context.say("latency and idle: measuring");
  const rounds = context.quick ? { count: 4, budgetMs: 60_000 } : { count: 12, budgetMs: 240_000 };
  await compare(sides, rounds, scales, async (side) => {
    const url = await context.database();
    const [consumer, producer] = [side.player("txbox", url), side.player("txbox", url)];
    await producer.setup();
    await createBusinessTable(url);
    const measure = async (measuredSeconds: number) => {
      // The relay of the other side is not there meanwhile.
      await consumer.listen();
      const waits = await measureWaits(consumer, producer, measuredSeconds);
      const { client, server } = await idleCpu(context, consumer, seconds * 1000);
      await consumer.hush();
      return { latency_p50: quantile(waits, 0.5), latency_p99: quantile(waits, 0.99), idle: client + (server ?? 0) };
    };
    await measure(1);
    return () => measure(seconds);
  });
}

export async function compareInbox(sides: Sides): Promise<void> {
  const { context } = sides;
  const ms = context.quick ? 250 : 1000;
  context.say("inbox: measuring");
  const rounds = { count: context.quick ? 16 : 40, budgetMs: context.quick ? 10_000 : 120_000 };
  await compare(sides, rounds, { inbox: { unit: "msg/s" } }, async (side) => {
    const player = side.player("txbox", await context.database());
    await player.setup();
    await player.receiveLoop({ connections: CONNECTIONS, ms: 500 });
    return async () => {
      const result = await player.receiveLoop({ connections: CONNECTIONS, ms });
      return { inbox: (result.transactions * 1000) / result.ms };
    };
  });
}
