import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { insertOrder } from "./business.ts";
import type { Contestant, Times } from "./contestant.ts";

export interface LoopOptions {
  connections: number;
  ms: number;
  /** Messages per transaction. */
  batch?: number;
}

export interface LoopResult {
  transactions: number;
  ms: number;
}

/** As many transactions {begin; insert an order; enqueue; commit} as go, back to back on every connection. */
export async function enqueueLoop(url: string, contestant: Contestant, options: LoopOptions): Promise<LoopResult> {
  const { connections, ms, batch = 1 } = options;
  let seq = 0;
  return withClients(url, connections, (clients) =>
    loop(clients, ms, async (client) => {
      await client.query("begin");
      await insertOrder(client, seq);
      await contestant.enqueue?.(
        client,
        Array.from({ length: batch }, () => (seq += 1)),
      );
      await client.query("commit");
    }),
  );
}

/** As many messages as go through receipt and handler, so many at a time. */
export async function receiveLoop(contestant: Contestant, { connections, ms }: LoopOptions): Promise<LoopResult> {
  let seq = 0;
  return loop(Array.from({ length: connections }), ms, async () => {
    seq += 1;
    await contestant.receive?.(seq);
  });
}

export interface WriteOptions {
  perSecond: number;
  seconds: number;
  connections: number;
}

/** One message per transaction at a steady rate, whatever the database's answers take; when each commit was confirmed. */
export async function steadyWriter(url: string, contestant: Contestant, options: WriteOptions): Promise<Times> {
  const { perSecond, seconds, connections } = options;
  const total = perSecond * seconds;
  const times: Times = [];
  let next = 0;
  await withClients(url, connections, async (clients) => {
    const started = performance.now();
    await Promise.all(
      clients.map(async (client) => {
        for (let seq = next++; seq < total; seq = next++) {
          const early = started + (seq * 1000) / perSecond - performance.now();
          if (early >= 1) await sleep(early);
          await client.query("begin");
          await insertOrder(client, seq);
          await contestant.enqueue?.(client, [seq]);
          await client.query("commit");
          times.push([seq, process.hrtime.bigint().toString()]);
        }
      }),
    );
  });
  return times;
}

async function loop<T>(workers: readonly T[], ms: number, step: (worker: T) => Promise<void>): Promise<LoopResult> {
  let transactions = 0;
  const started = performance.now();
  await Promise.all(
    workers.map(async (worker) => {
      while (performance.now() - started < ms) {
        await step(worker);
        transactions += 1;
      }
    }),
  );
  return { transactions, ms: performance.now() - started };
}

async function withClients<T>(url: string, count: number, run: (clients: pg.Client[]) => Promise<T>): Promise<T> {
  const clients = Array.from({ length: count }, () => new pg.Client({ connectionString: url }));
  await Promise.all(clients.map((client) => client.connect()));
  try {
    return await run(clients);
  } finally {
    await Promise.all(clients.map((client) => client.end()));
  }
}
