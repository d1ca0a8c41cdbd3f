import type { Contestant } from "../lib/contestant.ts";

/** Loaded only in the process that needs it. */
const CONTESTANTS = {
  txbox: async (url) => (await import("./txbox.ts")).createTxbox(url),
  raw: async (url) => (await import("./raw.ts")).createRaw(url),
  "hand-written": async (url) => (await import("./hand-written.ts")).createHandWritten(url),
  "graphile-worker": async (url) => (await import("./graphile-worker.ts")).createGraphileWorker(url),
  "pg-boss": async (url) => (await import("./pg-boss.ts")).createPgBoss(url),
  "pg-transactional-outbox": async (url) =>
    (await import("./pg-transactional-outbox.ts")).createPgTransactionalOutbox(url),
} satisfies Record<string, (url: string) => Promise<Contestant>>;

export type ContestantName = keyof typeof CONTESTANTS;

export async function createContestant(name: ContestantName, url: string): Promise<Contestant> {
  return CONTESTANTS[name](url);
}
