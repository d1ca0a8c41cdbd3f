import { BROKERS } from "../brokers/index.ts";
import type { Broker } from "../brokers/broker.ts";
import type { BrokerName } from "../brokers/index.ts";
import type { Contestant } from "../lib/contestant.ts";

/** Loaded only in the process that needs it. */
const CONTESTANTS = {
  txbox: async (url) => (await import("./txbox.ts")).createTxbox(url),
  /** The same with what `more` names switched on. */
  "txbox-operations": async (url, more) => {
    (await import("../lib/operations.ts")).switchOn(more);
    return (await import("./txbox.ts")).createTxbox(url);
  },
  /** The same by the server's log. */
  "txbox-wal": async (url) => (await import("./txbox.ts")).createTxbox(url, "stream"),
  "bare-stream": async (url) => (await import("./bare-stream.ts")).createBareStream(url),
  raw: async (url) => (await import("./raw.ts")).createRaw(url),
  "hand-written": async (url) => (await import("./hand-written.ts")).createHandWritten(url),
  "graphile-worker": async (url) => (await import("./graphile-worker.ts")).createGraphileWorker(url),
  "pg-boss": async (url) => (await import("./pg-boss.ts")).createPgBoss(url),
  "pg-transactional-outbox": async (url) =>
    (await import("./pg-transactional-outbox.ts")).createPgTransactionalOutbox(url),
  "broker-txbox": async (url, more) =>
    (await import("./broker-txbox.ts")).createBrokerTxbox(url, await openBroker(more)),
  "mongodb-claims": async (url) => (await import("./mongodb.ts")).createMongodb(url, "claims"),
  "mongodb-stream": async (url) => (await import("./mongodb.ts")).createMongodb(url, "stream"),
  "broker-raw": async (url, more) => (await import("./broker-raw.ts")).createBrokerRaw(url, await openBroker(more)),
} satisfies Record<string, (url: string, more: readonly string[]) => Promise<Contestant>>;

export type ContestantName = keyof typeof CONTESTANTS;

export async function createContestant(
  name: ContestantName,
  url: string,
  more: readonly string[],
): Promise<Contestant> {
  return CONTESTANTS[name](url, more);
}

function openBroker([name, address]: readonly string[]): Promise<Broker> {
  return BROKERS[name as BrokerName].open(String(address));
}
