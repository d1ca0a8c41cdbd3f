import pg from "pg";
import { CONCURRENCY, CONSUMER } from "../brokers/broker.ts";
import type { Broker, PublishRaw } from "../brokers/broker.ts";
import type { Message } from "../../src/index.ts";
import { insertOrder } from "../lib/business.ts";
import { consumeAll } from "../lib/consume-all.ts";
import type { Contestant, DrainOptions } from "../lib/contestant.ts";
import { createMessages, TYPE } from "../lib/messages.ts";
import type { Order } from "../lib/payload.ts";
import { stopwatch } from "../lib/stopwatch.ts";
import { createHandWritten, insertReceipt } from "./hand-written.ts";

/** The broker's client alone: it publishes what lies ready in memory, and consumes with a transaction written by hand. */
export function createBrokerRaw(url: string, broker: Broker): Contestant {
  const pool = new pg.Pool({ connectionString: url, max: CONCURRENCY });
  let publish: PublishRaw | undefined;

  const handle = async (id: string, { seq }: Order): Promise<void> => {
    const client = await pool.connect();
    try {
      await client.query("begin");
      if (await insertReceipt(client, CONSUMER, id, TYPE)) await insertOrder(client, seq);
      await client.query("commit");
    } finally {
      client.release();
    }
  };

  const feed = async (messages: readonly Message[]): Promise<void> => {
    await (
      await broker.rawPublisher(messages)
    )(0, messages.length);
  };

  return {
    setup: () => createHandWritten(url).setup(),
    async fill(messages) {
      publish = await broker.rawPublisher(createMessages(messages));
    },
    async drain({ messages, batch = 1000 }: DrainOptions) {
      await broker.reset();
      const watch = stopwatch();
      for (let from = 0; from < messages; from += batch) await publish?.(from, Math.min(messages, from + batch));
      const time = watch();
      return { handled: await broker.arrived(), left: 0, ...time };
    },
    consume: (messages) =>
      consumeAll(broker, messages, feed, (done) =>
        broker.rawConsumer(async ({ id, body }) => {
          await handle(id, JSON.parse(body) as Order);
          done();
        }),
      ),
    async close() {
      await broker[Symbol.asyncDispose]();
      await pool.end();
    },
  };
}
