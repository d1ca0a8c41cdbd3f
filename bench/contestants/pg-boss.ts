import { PgBoss } from "pg-boss";
import type { ConstructorOptions, Db, WorkOptions } from "pg-boss";
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

function quietBoss(url: string, options: ConstructorOptions): PgBoss {
  // No maintenance and no cron while we measure.
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, ...options });
  boss.on("error", (error) => {
    console.error(`pg-boss: ${error.message}`);
  });
  return boss;
}

export function createPgBoss(url: string, tuning: WorkOptions = drainSettings): Contestant {
  let sender: PgBoss | undefined;
  return {
    async setup() {
      const boss = await quietBoss(url, {}).start();
      await boss.createQueue(QUEUE, { partition: true, notify: true });
      await boss.stop();
    },
    async fill(messages) {
      const boss = await quietBoss(url, {}).start();
      for (let from = 0; from < messages; from += CHUNK) {
        const size = Math.min(CHUNK, messages - from);
        await boss.insert(
          QUEUE,
          Array.from({ length: size }, (_, i) => ({ data: order(from + i) })),
        );
      }
      await boss.stop();
    },
    async drain({ messages }: DrainOptions): Promise<DrainResult> {
      const done = Promise.withResolvers<void>();
      let handled = 0;
      const boss = await quietBoss(url, {}).start();
      const started = performance.now();
      await boss.work<Order>(QUEUE, tuning, (jobs) => {
        handled += jobs.length;
        if (handled >= messages) done.resolve();
        return Promise.resolve();
      });
      await done.promise;
      await boss.offWork(QUEUE, { wait: true });
      const ms = performance.now() - started;
      await boss.stop();
      const left = await withClient(url, async (client) => {
        const { rows } = await client.query<{ left: string }>(
          "select count(*) as left from pgboss.job where name = $1 and state < 'completed'",
          [QUEUE],
        );
        return Number(rows[0]?.left);
      });
      return { handled, left, ms };
    },
    async enqueue(client, seqs) {
      sender ??= await quietBoss(url, { migrate: false }).start();
      const db: Db = { executeSql: (text, values) => client.query(text, values) };
      for (const seq of seqs) await sender.send(QUEUE, order(seq), { db });
    },
    close: () => sender?.stop() ?? Promise.resolve(),
    async listen(): Promise<Hearing> {
      const hearing = createHearing();
      const boss = await quietBoss(url, { useListenNotify: true }).start();
      await boss.work<Order>(QUEUE, latencySettings, (jobs) => {
        for (const job of jobs) hearing.heard(job.data.seq);
        return Promise.resolve();
      });
      return { arrivals: hearing.arrivals, stop: () => boss.stop() };
    },
  };
}
