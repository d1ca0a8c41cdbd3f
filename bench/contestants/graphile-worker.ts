import { run, runMigrations, Logger } from "graphile-worker";
import type { Runner, RunnerOptions } from "graphile-worker";
import type { Contestant, DrainOptions, DrainResult, Hearing } from "../lib/contestant.ts";
import { createHearing } from "../lib/hearing.ts";
import { order, orderSql } from "../lib/payload.ts";
import type { Order } from "../lib/payload.ts";
import { withClient } from "../lib/with-client.ts";

// Without this graphile-worker formats a line for every job that succeeds, whatever its logger does with it.
process.env["NO_LOG_SUCCESS"] = "1";

const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(`graphile-worker: ${message}`);
});

function runnerOptions(connectionString: string, worker: GraphileConfig.WorkerOptions): RunnerOptions {
  const preset = { worker: { connectionString, maxPoolSize: 10, logger: quiet, ...worker } };
  return { preset, noHandleSignals: true, parsedCronItems: [] };
}

/** Best of the settings tried: jobs fetched 2,000 at a time, completed together, no order between them. */
export const drainSettings = {
  concurrentJobs: 24,
  localQueue: { size: 2000 },
  completeJobBatchDelay: 5,
  failJobBatchDelay: 5,
  pollInterval: 100,
} satisfies GraphileConfig.WorkerOptions;

/** For latency no local queue: every NOTIFY wakes a worker at once. */
export const latencySettings = { concurrentJobs: 8 } satisfies GraphileConfig.WorkerOptions;

export function createGraphileWorker(url: string, tuning: GraphileConfig.WorkerOptions = drainSettings): Contestant {
  let runner: Runner | undefined;
  return {
    async setup() {
      await runMigrations(runnerOptions(url, {}));
    },
    fill: (messages) =>
      withClient(url, async (client) => {
        await client.query(
          `select graphile_worker.add_jobs(array(
            select row('publish', ${orderSql("i")}, null, null, null, null, null, null)::graphile_worker.job_spec
            from generate_series(1, $1::bigint) i))`,
          [messages],
        );
        await client.query("vacuum analyze graphile_worker._private_jobs");
      }),
    async drain({ messages }: DrainOptions): Promise<DrainResult> {
      const done = Promise.withResolvers<void>();
      let handled = 0;
      const started = performance.now();
      const active = await run(runnerOptions(url, tuning), {
        publish: () => {
          handled += 1;
          if (handled === messages) done.resolve();
        },
      });
      await Promise.race([done.promise, active.promise]);
      await active.stop();
      const ms = performance.now() - started;
      const left = await withClient(url, async (client) => {
        const { rows } = await client.query<{ left: string }>("select count(*) as left from graphile_worker.jobs");
        return Number(rows[0]?.left);
      });
      return { handled, left, ms };
    },
    async enqueue(client, seqs) {
      for (const seq of seqs) {
        await client.query("select graphile_worker.add_job('publish', $1::json)", [JSON.stringify(order(seq))]);
      }
    },
    async listen(): Promise<Hearing> {
      const hearing = createHearing();
      runner = await run(runnerOptions(url, latencySettings), {
        publish: (payload) => {
          hearing.heard((payload as Order).seq);
        },
      });
      return { ...hearing, stop: () => runner?.stop() ?? Promise.resolve() };
    },
  };
}
