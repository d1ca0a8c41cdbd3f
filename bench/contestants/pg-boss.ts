import { PgBoss } from "pg-boss";
import type { Db, WorkOptions } from "pg-boss";
import type { Contestant, DrainOptions, DrainResult, Hearing } from "../lib/contestant.ts";
import { createHearing } from "../lib/hearing.ts";
import { order } from "../lib/payload.ts";
import type { Order } from "../lib/payload.ts";
import { withClient } from "../lib/with-client.ts";

const QUEUE = "publish";
const CHUNK = 1000;

/** Best of the settings tried: big batches by several workers that fetch again at once while batches are full. */
export const drainSettings: WorkOptions = {
  batchSize: 1000,
  localConcurrency: 4,
  burstWhenBatchFull: true,
  pollingIntervalSeconds: 0.5,
};

/** For latency: LISTEN/NOTIFY, with several workers so that one is always waiting. */
export const latencySettings: WorkOptions = { batchSize: 100, localConcurrency: 4, pollingIntervalSeconds: 0.5 };

export function createPgBoss(url: string, tuning: WorkOptions = drainSettings): Contestant {
  let started: Promise<PgBoss> | undefined;
  const start = async (): Promise<PgBoss> => {
    // No maintenance and no cron while we measure.
    const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, useListenNotify: true });
    boss.on("error", (error) => {
      console.error(`pg-boss: ${error.message}`);
    });
    return boss.start();
  };
  const theBoss = (): Promise<PgBoss> => (started ??= start());
  const stop = async (): Promise<void> => {
    if (started !== undefined) await (await started).stop({ graceful: false });
    started = undefined;
  };

  return {
    async setup() {
      const boss = await theBoss();
      await boss.createQueue(QUEUE, { partition: true, notify: true });
    },
    async fill(messages) {
      const boss = await theBoss();
      for (let from = 0; from < messages; from += CHUNK) {
        const size = Math.min(CHUNK, messages - from);
        await boss.insert(
          QUEUE,
          Array.from({ length: size }, (_, i) => ({ data: order(from + i) })),
        );
      }
    },
    async drain({ messages }: DrainOptions): Promise<DrainResult> {
      const boss = await theBoss();
      const done = Promise.withResolvers<void>();
      let handled = 0;
      const startedAt = performance.now();
      await boss.work<Order>(QUEUE, tuning, (jobs) => {
        handled += jobs.length;
        if (handled >= messages) done.resolve();
        return Promise.resolve();
      });
      await done.promise;
      await boss.offWork(QUEUE, { wait: true });
      const ms = performance.now() - startedAt;
      const left = await withClient(url, async (client) => {
        const { rows } = await client.query<{ left: string }>(
          "select count(*) as left from pgboss.job where name = $1 and state < 'completed'",
          [QUEUE],
        );
        return Number(rows[0]?.left);
      });
      // What is done stays in the table for a week; here it would only slow the next round down.
      await boss.deleteStoredJobs(QUEUE);
      return { handled, left, ms };
    },
    async enqueue(client, seqs) {
      const boss = await theBoss();
      const db: Db = { executeSql: (text, values) => client.query(text, values) };
      for (const seq of seqs) await boss.send(QUEUE, order(seq), { db });
    },
    async listen(): Promise<Hearing> {
      const boss = await theBoss();
      const hearing = createHearing();
      await boss.work<Order>(QUEUE, latencySettings, (jobs) => {
        for (const job of jobs) hearing.heard(job.data.seq);
        return Promise.resolve();
      });
      return { arrivals: hearing.arrivals, stop };
    },
    close: stop,
  };
}
