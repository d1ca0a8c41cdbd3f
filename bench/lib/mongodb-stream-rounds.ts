import type { MongoClient, Timestamp } from "mongodb";
import { createRelay, type Relay, type RelayOptions } from "../../src/index.ts";
import { createMongoStore } from "../../src/stores/mongodb/index.ts";
import { countingPublisher, type Drained, fillTxbox } from "./mongodb-rounds.ts";

const BATCH = 1000;

interface Filled {
  /** The cluster's time before the first message. */
  readonly from: Timestamp;
  readonly messages: number;
}

/** Messages in a collection of their own, written while the relay was away: it goes on from where it left. */
export async function fillForStream(client: MongoClient, name: string, messages: number): Promise<Filled> {
  await createMongoStore({ client, collection: name }).migrator.migrate();
  await drainByStream(client, name);
  const { operationTime: from } = (await client.db().command({ ping: 1 })) as unknown as { operationTime: Timestamp };
  await fillTxbox(client, name, messages);
  return { from, messages };
}

/** A relay with its defaults, by change stream. */
export async function drainByStream(client: MongoClient, name: string): Promise<Drained & { from: string }> {
  let from = "nowhere";
  const onEvent = (event: { type: string; from?: string }): void => {
    if (event.type.startsWith("stream_")) from = event.from ?? event.type;
  };
  const { publisher, handled } = countingPublisher();
  const relay = streamingRelay(
    { client, collection: name },
    { name: "bench", publisher, maintenance: false, batchSize: BATCH },
    onEvent,
  );
  const started = performance.now();
  await relay.drainOnce();
  return { handled: handled(), ms: performance.now() - started, from };
}

/** Until 0.2 the source was an option of the store. */
function streamingRelay(
  options: Parameters<typeof createMongoStore>[0],
  relay: Omit<RelayOptions, "store" | "source" | "onEvent">,
  onEvent: (event: { type: string; from?: string }) => void,
): Relay {
  try {
    return createRelay({ store: createMongoStore(options), source: "stream", onEvent, ...relay });
  } catch {
    const before = { ...options, source: "changeStream", onEvent };
    return createRelay({ store: createMongoStore(before), ...relay });
  }
}

const LANES = Array.from({ length: 64 }, (_, lane) => lane);

/** What the relay asks for. */
const INSERTS = {
  operationType: "insert",
  "fullDocument.waits": "ready",
  "fullDocument.lane": { $in: LANES },
  "fullDocument.stream": { $not: /^inbox\./ },
};

/** The limit: the same inserts by the driver's own change stream, and nothing done with them. */
export async function readBareStream(client: MongoClient, name: string, { from, messages }: Filled): Promise<Drained> {
  const started = performance.now();
  const stream = client
    .db()
    .collection(name)
    .watch([{ $match: INSERTS }, { $project: { clusterTime: 1, fullDocument: 1 } }], {
      startAtOperationTime: from,
      batchSize: BATCH,
    });
  let handled = 0;
  try {
    while (handled < messages) {
      const event = (await stream.next()) as { fullDocument?: { payload?: unknown } };
      if (event.fullDocument?.payload !== undefined) handled++;
    }
    return { handled, ms: performance.now() - started };
  } finally {
    await stream.close();
  }
}
