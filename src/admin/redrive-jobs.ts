import { randomUUID } from "node:crypto";
import type { Author, DeadChoice, Store } from "../core/contracts.ts";
import { describeError } from "../core/errors.ts";
import { plural } from "../core/plain-words.ts";
import type { JobView } from "./page-api.ts";
import { PageFailure } from "./page-failure.ts";
import { errorText } from "./shown-text.ts";
import { redrive, type RedriveProgress } from "./redrive.ts";

const MOST_RUNNING = 10;
const KEPT_MS = 10 * 60_000;

export interface NewJob {
  readonly name: string;
  readonly store: Store;
  readonly what: string;
  readonly choice: DeadChoice;
  readonly perSecond: number;
  readonly author: Required<Pick<Author, "actor">> & Pick<Author, "reason">;
}

interface Job {
  view: JobView;
  readonly store: Store;
  readonly relay: string | undefined;
  readonly stopping: AbortController;
  readonly ended: Promise<void>;
}

/** Redrives that the page has begun. They live in this process and end with it; what was requeued stays so. */
export class RedriveJobs {
  readonly #jobs = new Map<string, Job>();

  views(): JobView[] {
    for (const [id, { view }] of this.#jobs)
      if (view.endedAt !== null && Date.now() - view.endedAt > KEPT_MS) this.#jobs.delete(id);
    return [...this.#jobs.values()].map(({ view }) => view);
  }

  start({ name, store, what, choice, perSecond, author }: NewJob): string {
    if (this.views().filter(({ endedAt }) => endedAt === null).length >= MOST_RUNNING)
      throw new PageFailure(429, `${MOST_RUNNING} redrives run already`, { fix: "Wait for one, or stop it" });
    const id = randomUUID();
    const stopping = new AbortController();
    const view: JobView = {
      id,
      store: name,
      what,
      actor: author.actor,
      perSecond,
      requeued: 0,
      of: choice.limit ?? null,
      state: "running",
      words: "begins",
      startedAt: Date.now(),
      endedAt: null,
    };
    const update = (change: Partial<JobView>): void => {
      const job = this.#jobs.get(id);
      if (job !== undefined) job.view = { ...job.view, ...change };
    };
    const run = async (): Promise<void> => {
      try {
        const signal = stopping.signal;
        const onProgress = ({ requeued, waitingFor }: RedriveProgress): void => {
          const words = waitingFor === null ? `${perSecond} in a second` : `waits: ${waitingFor}`;
          update({ requeued, state: waitingFor === null ? "running" : "waiting", words });
        };
        const { requeued } = await redrive(store, { ...choice, perSecond, signal, onProgress, by: author });
        const state = signal.aborted ? "stopped" : "done";
        update({ requeued, state, words: `${plural(requeued, "letter")} requeued`, endedAt: Date.now() });
      } catch (error) {
        update({ state: "failed", words: errorText(describeError(error)), endedAt: Date.now() });
      }
    };
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    this.#jobs.set(id, { view, store, relay: choice.relay, stopping, ended });
    void run().finally(resolve);
    return id;
  }

  /** Stops it after the part in hand; noted under the name of who did it. */
  async stop(id: string, author: NewJob["author"]): Promise<void> {
    const job = this.#jobs.get(id);
    if (job === undefined) throw new PageFailure(404, "There is no such redrive");
    if (job.view.endedAt !== null || job.stopping.signal.aborted)
      throw new PageFailure(409, "Nothing was changed: this redrive has ended, or was told to");
    job.stopping.abort();
    await job.ended;
    const { what, requeued } = job.view;
    await job.store.admin
      .by(author)
      .noteStop({ what, requeued, ...(job.relay === undefined ? {} : { relay: job.relay }) });
  }

  async close(): Promise<void> {
    for (const { stopping } of this.#jobs.values()) stopping.abort();
    await Promise.all([...this.#jobs.values()].map(({ ended }) => ended));
  }
}
