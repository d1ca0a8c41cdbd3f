import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { createInbox, createOutbox, createRelay } from "../../src/index.ts";
import { uuidv7 } from "../../src/core/uuid.ts";
import type { Message, Publisher, PublishResult, RelayEvent } from "../../src/index.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import { countRows, createBusinessTable, insertOrder } from "../lib/business.ts";
import type { Contestant, DrainOptions, DrainResult, Hearing } from "../lib/contestant.ts";
import { createHearing } from "../lib/hearing.ts";
import { order } from "../lib/payload.ts";
import type { Order } from "../lib/payload.ts";
import { shaped } from "../lib/shapes.ts";
import type { Shape } from "../lib/shapes.ts";
import { ageLog, multiplyLog } from "./txbox-log.ts";

type Events = { order_created: Order };

const PUBLISHED: PublishResult = { status: "published" };
/** Messages written through the API; the rest are copies of them. */
const SEED = 1000;

/** txbox as a user has it: a pool, a store, defaults. */
export function createTxbox(url: string, source: "polling" | "stream" = "polling"): Contestant {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  const store = createPostgresStore({ client: pool });
  const outbox = createOutbox<Events, pg.ClientBase>({ store });
  const inbox = createInbox<Events, pg.ClientBase>({ store, consumer: "payments" });

  const enqueue = async (client: pg.ClientBase, seqs: readonly number[], shape: Shape): Promise<void> => {
    const messages = seqs.map((seq) => {
      const { key, aggregateId, correlationId } = shaped(shape);
      return {
        stream: "orders",
        type: "order_created" as const,
        aggregateType: "order",
        aggregateId,
        key,
        payload: order(seq),
        headers: correlationId === undefined ? { schemaVersion: 1 } : { correlationId, schemaVersion: 1 },
      };
    });
    const [only] = messages;
    await (messages.length === 1 && only !== undefined
      ? outbox.enqueue(client, only)
      : outbox.enqueue(client, messages));
  };

  let heard = 0;
  /** Messages are counted, and not looked into. */
  let onlyCounts = false;

  return {
    async setup() {
      await store.migrator.migrate();
      if (source === "stream") await store.wal.enable();
      await createBusinessTable(url);
    },
    async fill(messages) {
      const client = await pool.connect();
      await client.query("begin");
      await enqueue(
        client,
        Array.from({ length: Math.min(SEED, messages) }, (_, seq) => seq),
        "plain",
      );
      await client.query("commit");
      client.release();
      await multiplyLog(url, messages);
    },
    async drain({ messages, batch = 1000, relay: standing }: DrainOptions): Promise<DrainResult> {
      const sink = createSink();
      const name = standing ?? `bench-${randomUUID()}`;
      const relay = createRelay({ store, name, publisher: sink, batchSize: batch, maintenance: false });
      const started = performance.now();
      await relay.drainOnce({ deadlineMs: 110_000, ...(standing === undefined ? {} : { max: messages }) });
      const ms = performance.now() - started;
      if (standing === undefined) await store.admin.drop(name);
      return { handled: sink.handled, left: messages - sink.handled, ms, steady: sink.steady() };
    },
    async hear(messages) {
      const started = performance.now();
      const goal = heard + messages;
      onlyCounts = true;
      while (heard < goal) await sleep(2);
      onlyCounts = false;
      return performance.now() - started;
    },
    enqueue,
    age: (messages, shape) => ageLog(url, messages, shape),
    stored: () => countRows(url, "txbox.message"),
    async listen(): Promise<Hearing> {
      const hearing = createHearing();
      const publisher: Publisher = {
        keepsKeyOrder: true,
        publish(batch) {
          heard += batch.length;
          if (!onlyCounts) for (const message of batch) hearing.heard((JSON.parse(String(message.body)) as Order).seq);
          return Promise.resolve(batch.map(() => PUBLISHED));
        },
      };
      const { promise: streams, resolve } = Promise.withResolvers<void>();
      const onEvent = ({ type }: RelayEvent): void => {
        if (type === "stream_started") resolve();
      };
      const relay = createRelay({ store, name: "latency", publisher, maintenance: false, source, onEvent });
      await relay.start();
      if (source === "stream") await streams;
      return { arrivals: hearing.arrivals, stop: () => relay.stop() };
    },
    async receive(seq) {
      const message = { id: uuidv7(), type: "order_created", body: "{}", headers: {} };
      await inbox.handle(message, (tx) => insertOrder(tx, seq));
    },
    close: () => pool.end(),
  };
}

/** A publisher that does nothing but count, and note when it was first and last called. */
function createSink(): Publisher & { readonly handled: number; steady(): number } {
  let handled = 0;
  let firstBatch = 0;
  let first = 0;
  let last = 0;
  return {
    keepsKeyOrder: true,
    publish(messages: readonly Message[]) {
      last = performance.now();
      if (handled === 0) {
        first = last;
        firstBatch = messages.length;
      }
      handled += messages.length;
      return Promise.resolve(messages.map(() => PUBLISHED));
    },
    get handled() {
      return handled;
    },
    steady: () => ((handled - firstBatch) * 1000) / (last - first),
  };
}
