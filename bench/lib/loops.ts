import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { insertOrder } from "./business.ts";
import type { Contestant, Times } from "./contestant.ts";
import { processCpuMs } from "./server-cpu.ts";
import type { Shape } from "./shapes.ts";

export interface LoopOptions {
  connections: number;
  ms: number;
  /** Messages per transaction. */
  batch?: number;
  shape?: Shape;
}

export interface LoopResult {
  transactions: number;
  ms: number;
  /** CPU time of the server's processes behind the connections; undefined where /proc is not there. */
  serverCpuMs?: number | undefined;
}

export type EnqueueLoop = (options: LoopOptions) => Promise<LoopResult>;

/**
 * As many transactions {begin; insert an order; enqueue; commit} as go, back to back on every connection. Connections stay
 * for the next call, as an application's do.
 */
export function createEnqueueLoop(url: string, contestant: Contestant): EnqueueLoop {
  const open: (pg.Client & { processID?: number })[] = [];
  let seq = 0;
  return async ({ connections, ms, batch = 1, shape = "plain" }) => {
    while (open.length < connections) {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      open.push(client);
    }
    const clients = open.slice(0, connections);
    const cpu = (): number =>
      clients.reduce((sum, { processID }) => sum + (processCpuMs(processID ?? 0) ?? Number.NaN), 0);
    const before = cpu();
    const result = await loop(clients, ms, async (client) => {
      await client.query("begin");
      await insertOrder(client, seq);
      const seqs = Array.from({ length: batch }, () => (seq += 1));
      await contestant.enqueue?.(client, seqs, shape);
      await client.query("commit");
    });
    const used = cpu() - before;
    return { ...result, serverCpuMs: Number.isNaN(used) ? undefined : used };
  };
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
          await contestant.enqueue?.(client, [seq], "plain");
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
