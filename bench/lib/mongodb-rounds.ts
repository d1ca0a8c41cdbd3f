import type { Collection, MongoClient } from "mongodb";
import { createOutbox, createRelay } from "../../src/index.ts";
import type { Publisher } from "../../src/index.ts";
import { createMongoStore } from "../../src/stores/mongodb/index.ts";
import { order } from "./payload.ts";

export interface OutboxDocument {
  _id: string;
  stream: string;
  event_type: string;
  key: string | null;
  payload: unknown;
  created_at: Date;
  next_retry_at: Date;
  status: string;
  attempts: number;
  lease_owner: string | null;
  lease_until: Date | null;
  lease_token?: string;
  relay?: string;
  published_at?: Date;
  waits?: string;
  lane?: number;
  position?: number;
  size?: number;
}

export type Documents = Collection<OutboxDocument>;

const BATCH = 1000;
const KEYS = 1000;
const LEASE_MS = 30_000;
/** The indexes of seed 000. */
const SEED_INDEXES = [
  { key: { status: 1, next_retry_at: 1, created_at: 1 } },
  { key: { lease_until: 1 } },
  { key: { stream: 1, status: 1, next_retry_at: 1 } },
] as const;

export interface Drained {
  handled: number;
  ms: number;
}

/** Does nothing but count. */
export function countingPublisher(): { publisher: Publisher; handled: () => number } {
  let handled = 0;
  const publisher: Publisher = {
    keepsKeyOrder: true,
    async publish(messages) {
      for (const { body } of messages) if (body.length > 0) handled++;
      return messages.map(() => ({ status: "published" }));
    },
  };
  return { publisher, handled: () => handled };
}

/** A relay with its defaults. */
export async function drainByTxbox(client: MongoClient, name: string): Promise<Drained> {
  const store = createMongoStore({ client, collection: name });
  const { publisher, handled } = countingPublisher();
  const started = performance.now();
  await createRelay({ store, name: "bench", publisher, maintenance: false, batchSize: BATCH }).drainOnce();
  return { handled: handled(), ms: performance.now() - started };
}

/** Enqueues through the outbox, in transactions of a thousand. */
export async function fillTxbox(client: MongoClient, name: string, messages: number): Promise<void> {
  const store = createMongoStore({ client, collection: name });
  await store.migrator.migrate();
  const outbox = createOutbox({ store });
  for (let from = 0; from < messages; from += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, messages - from) }, (_, i) => ({
      stream: "bench",
      type: "event",
      key: `key-${(from + i) % KEYS}`,
      payload: order(from + i),
    }));
    await client.withSession((session) => session.withTransaction(() => outbox.enqueue(session, batch)));
  }
}

/** As they were before they were drained. */
export async function resetTxbox(documents: Documents): Promise<void> {
  const fresh = { status: "new", waits: "ready", attempts: 0, lease_owner: null, lease_until: null };
  await documents.updateMany(
    { status: "done", stream: "bench" },
    { $set: fresh, $unset: { published_at: 1, lease_token: 1, relay: 1 } },
  );
}

/** Copies of the same documents, with the fields and indexes of the seed only. */
export async function fillSeed(from: Documents, to: Documents, messages: number): Promise<void> {
  await to.createIndexes(SEED_INDEXES.map(({ key }) => ({ key: { ...key } })));
  const project = { lane: 0, position: 0, waits: 0, size: 0 };
  const all = await from.find({ stream: "bench" }, { projection: project, limit: messages }).toArray();
  for (let at = 0; at < all.length; at += BATCH) {
    await to.insertMany(all.slice(at, at + BATCH).map((document) => ({ ...document, status: "new" })));
  }
}

export async function resetSeed(documents: Documents): Promise<void> {
  await documents.updateMany({}, { $set: { status: "new", attempts: 0, lease_owner: null, lease_until: null } });
}

/** The seed's loop: one document at a time. */
export async function drainOneAtATime(documents: Documents): Promise<Drained> {
  const started = performance.now();
  for (let handled = 0; ; handled++) {
    const now = new Date();
    const claimed = await documents.findOneAndUpdate(
      {
        $or: [
          { status: { $in: ["new", "failed"] }, next_retry_at: { $lte: now } },
          { status: "processing", lease_until: { $lt: now } },
        ],
      },
      {
        $set: { status: "processing", lease_owner: "worker", lease_until: new Date(now.getTime() + LEASE_MS) },
        $inc: { attempts: 1 },
      },
      { sort: { created_at: 1 }, returnDocument: "after" },
    );
    if (claimed === null) return { handled, ms: performance.now() - started };
    const { _id } = claimed;
    await documents.updateOne({ _id }, { $set: { status: "done", lease_owner: null, lease_until: null } });
  }
}

/** The limit: read a batch, update it twice, with no fence, no order and no count. */
export async function drainByHand(documents: Documents): Promise<Drained> {
  const started = performance.now();
  for (let handled = 0; ;) {
    const batch = await documents.find({ status: "new" }, { limit: BATCH, batchSize: BATCH + 1 }).toArray();
    if (batch.length === 0) return { handled, ms: performance.now() - started };
    const ids = { _id: { $in: batch.map(({ _id }) => _id) } };
    const lease = { status: "processing", lease_owner: "worker", lease_until: new Date(Date.now() + LEASE_MS) };
    await documents.updateMany(ids, { $set: lease, $inc: { attempts: 1 } });
    await documents.updateMany(ids, { $set: { status: "done", lease_owner: null, lease_until: null } });
    handled += batch.length;
  }
}

/** Documents that were done long ago, written as they are. */
export async function fillDone(documents: Documents, count: number): Promise<void> {
  const at = new Date();
  for (let from = 0; from < count; from += 10_000) {
    const batch = Array.from({ length: Math.min(10_000, count - from) }, (_, i) => ({
      _id: `done-${from + i}`,
      stream: "old",
      event_type: "event",
      key: `key-${(from + i) % KEYS}`,
      payload: order(from + i),
      created_at: at,
      published_at: at,
      status: "done",
      next_retry_at: at,
      attempts: 1,
      lease_owner: null,
      lease_until: null,
      position: from + i,
      lane: i % 64,
      size: 250,
    }));
    await documents.insertMany(batch, { ordered: false, writeConcern: { w: 1 } });
  }
}
