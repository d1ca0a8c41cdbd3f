import type pg from "pg";
import { DatabaseSetup, getDisabledLogger, initializePollingMessageListener } from "pg-transactional-outbox";
import type { PollingListenerConfig } from "pg-transactional-outbox";
import type { Contestant, DrainOptions, DrainResult } from "../lib/contestant.ts";
import { orderSql } from "../lib/payload.ts";
import { withClient } from "../lib/with-client.ts";

const SCHEMA = "public";
const TABLE = "outbox";
const NEXT_MESSAGES = "next_outbox_messages";

export interface Tuning {
  batchSize: number;
  connections: number;
}

/** Best of the settings tried, with messages that may go out in parallel, in any order. */
export const drainSettings: Tuning = { batchSize: 100, connections: 20 };

function listenerConfig(url: string, { batchSize, connections }: Tuning): PollingListenerConfig {
  const connection: pg.PoolConfig = { connectionString: url, max: connections };
  return {
    outboxOrInbox: "outbox",
    dbListenerConfig: connection,
    dbHandlerConfig: connection,
    settings: {
      dbSchema: SCHEMA,
      dbTable: TABLE,
      // Its README turns both off for an outbox.
      enableMaxAttemptsProtection: false,
      enablePoisonousMessageProtection: false,
      messageCleanupIntervalInMs: 0,
      nextMessagesBatchSize: batchSize,
      nextMessagesFunctionName: NEXT_MESSAGES,
      // A message on which fetching and handling collide waits for this long.
      nextMessagesLockInMs: 500,
      nextMessagesPollingIntervalInMs: 1,
    },
  };
}

export function createPgTransactionalOutbox(url: string, tuning: Tuning = drainSettings): Contestant {
  const config = listenerConfig(url, tuning);
  return {
    setup: () =>
      withClient(url, async (client) => {
        const names = {
          outboxOrInbox: "outbox" as const,
          database: "",
          schema: SCHEMA,
          table: TABLE,
          listenerRole: "postgres",
          nextMessagesName: NEXT_MESSAGES,
        };
        await client.query(DatabaseSetup.dropAndCreateTable(names));
        await client.query(DatabaseSetup.createPollingFunction(names));
        await client.query(DatabaseSetup.setupPollingIndexes(names));
      }),
    fill: (messages) =>
      withClient(url, async (client) => {
        await client.query(`truncate ${TABLE}`);
        await client.query(
          `insert into ${TABLE} (id, aggregate_type, aggregate_id, message_type, payload, concurrency)
           select gen_random_uuid(), 'order', 'order-' || i % 1000, 'order_created', ${orderSql("i")}, 'parallel'
           from generate_series(1, $1::bigint) i`,
          [messages],
        );
        await client.query(`vacuum analyze ${TABLE}`);
      }),
    async drain({ messages }: DrainOptions): Promise<DrainResult> {
      const done = Promise.withResolvers<void>();
      let handled = 0;
      const started = performance.now();
      const [shutdown] = initializePollingMessageListener(
        config,
        {
          handle: () => {
            handled += 1;
            if (handled === messages) done.resolve();
            return Promise.resolve();
          },
        },
        getDisabledLogger(),
        // The default strategy asks for one message at a time until it has been called `batchSize` times.
        { batchSizeStrategy: () => Promise.resolve(tuning.batchSize) },
      );
      await done.promise;
      // The handler runs before its transaction commits.
      const left = await untilProcessed(url);
      const ms = performance.now() - started;
      await shutdown();
      return { handled, left, ms };
    },
  };
}

async function untilProcessed(url: string): Promise<number> {
  return withClient(url, async (client) => {
    for (let tries = 0; ; tries += 1) {
      const { rows } = await client.query<{ left: string }>(
        `select count(*) as left from ${TABLE} where processed_at is null`,
      );
      const left = Number(rows[0]?.left);
      if (left === 0 || tries === 500) return left;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  });
}
