import { randomUUID } from "node:crypto";
import pg from "pg";
import type { Broker } from "../brokers/broker.ts";
import { CONCURRENCY, CONSUMER } from "../brokers/broker.ts";
import { createInbox, createOutbox, createRelay } from "../../src/index.ts";
import type { Message, Subscriber } from "../../src/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { createBusinessTable, insertOrder } from "../lib/business.ts";
import { consumeAll } from "../lib/consume-all.ts";
import type { Contestant, DrainOptions } from "../lib/contestant.ts";
import { headersOf, keyOf, STREAM, TYPE } from "../lib/messages.ts";
import { order } from "../lib/payload.ts";
import type { Order } from "../lib/payload.ts";
import { stopwatch } from "../lib/stopwatch.ts";

type Events = { order_created: Order };

const PER_TRANSACTION = 1000;

/** PostgreSQL → relay → broker, and broker → inbox → PostgreSQL, as a user has them: all options at their defaults. */
export function createBrokerTxbox(url: string, broker: Broker): Contestant {
  const pool = new pg.Pool({ connectionString: url, max: CONCURRENCY });
  const store = createPostgresStore({ client: pool });
  const outbox = createOutbox<Events, pg.ClientBase>({ store });
  const publisher = broker.publisher();

  const enqueue = async (from: number, to: number): Promise<void> => {
    const client = await pool.connect();
    await client.query("begin");
    const seqs = Array.from({ length: to - from }, (_, i) => from + i);
    await outbox.enqueue(
      client,
      seqs.map((seq) => ({
        stream: STREAM,
        type: TYPE,
        aggregateType: "order",
        aggregateId: keyOf(seq),
        headers: headersOf(seq),
        payload: order(seq),
      })),
    );
    await client.query("commit");
    client.release();
  };

  const feed = async (messages: readonly Message[]): Promise<void> => {
    const results = await (await publisher).publish(messages, new AbortController().signal);
    const failed = results.find(({ status }) => status !== "published");
    if (failed !== undefined) throw new Error(`a message for the consumer was not published: ${failed.status}`);
  };

  return {
    async setup() {
      await store.migrator.migrate();
      await createBusinessTable(url);
    },
    async fill(messages) {
      for (let seq = 0; seq < messages; seq += PER_TRANSACTION) {
        await enqueue(seq, Math.min(messages, seq + PER_TRANSACTION));
      }
      await pool.query("vacuum analyze txbox.message");
    },
    async drain({ messages, batch = 1000 }: DrainOptions) {
      await broker.reset();
      const name = `bench-${randomUUID()}`;
      const relay = createRelay({ store, name, publisher: await publisher, batchSize: batch, maintenance: false });
      const watch = stopwatch();
      const { published } = await relay.drainOnce({ deadlineMs: 110_000 });
      const time = watch();
      await store.admin.drop(name);
      return { handled: await broker.arrived(), left: messages - published, ...time };
    },
    consume: (messages) =>
      consumeAll(broker, messages, feed, async (done) => {
        const inbox = createInbox<Events, pg.ClientBase>({ store, consumer: CONSUMER });
        inbox.on(TYPE, (tx, { payload }) => insertOrder(tx, payload.seq));
        await inbox.start(observed(await broker.subscriber(), done));
        return () => inbox.stop();
      }),
    async close() {
      await (await publisher).close?.();
      await broker[Symbol.asyncDispose]();
      await pool.end();
    },
  };
}

/** Tells when a message has been handled and committed. */
function observed(subscriber: Subscriber, done: () => void): Subscriber {
  return {
    start: (consumer, handle) =>
      subscriber.start(consumer, async (message, signal) => {
        const result = await handle(message, signal);
        if (result.status === "done") done();
        return result;
      }),
    stop: () => subscriber.stop(),
  };
}
