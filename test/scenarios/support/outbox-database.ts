import pg from "pg";
import type { NewMessage } from "../../../src/core/message.ts";
import { createOutbox, type Outbox } from "../../../src/outbox/outbox.ts";
import {
  createPostgresStore,
  type PostgresStore,
  type PostgresStoreOptions,
} from "../../../src/stores/postgres/index.ts";
import { createDatabase, type TestDatabase } from "../../harness/create-database.ts";
import { migratedDatabase, sharedPostgresUrl } from "../../harness/shared-postgres.ts";

export interface Numbered {
  key: string | null;
  n: number;
  poison?: boolean;
}

export type Row = Record<string, unknown>;

/** A database with the txbox tables in it, and an application's way to write to it. */
export interface OutboxDatabase extends AsyncDisposable {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly store: PostgresStore;
  readonly outbox: Outbox<Record<string, unknown>, object>;
  /** Enqueues in one transaction. */
  enqueue(messages: readonly Numbered[]): Promise<void>;
  /** A connection of its own, to hold a transaction open on. */
  connect(): Promise<HeldClient>;
  query<R extends Row = Row>(sql: string, params?: unknown[]): Promise<R[]>;
  /** The only value of the only row. */
  value(sql: string, params?: unknown[]): Promise<unknown>;
  close(): Promise<void>;
}

export interface HeldClient extends AsyncDisposable {
  readonly client: pg.Client;
  query(sql: string): Promise<void>;
  enqueue(messages: readonly Numbered[]): Promise<void>;
}

export interface OutboxDatabaseOptions extends Omit<PostgresStoreOptions, "client"> {
  serverUrl?: string;
  /** A database that exists already. */
  url?: string;
}

export function openPool(url: string, max = 10): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max, connectionTimeoutMillis: 5000 });
  pool.on("error", () => undefined);
  return pool;
}

export async function outboxDatabase(options: OutboxDatabaseOptions = {}): Promise<OutboxDatabase> {
  const { serverUrl, url: existing, ...storeOptions } = options;
  const { schema, tablePrefix } = storeOptions;
  const isUsual = serverUrl === undefined && schema === undefined && tablePrefix === undefined;
  const fresh = (): Promise<TestDatabase> =>
    isUsual ? migratedDatabase() : createDatabase(serverUrl ?? sharedPostgresUrl());
  const database = existing === undefined ? await fresh() : undefined;
  const url = existing ?? database?.url ?? "";
  const pool = openPool(url);
  const store = createPostgresStore({ client: pool, ...storeOptions });
  if (existing === undefined && !isUsual) await store.migrator.migrate();
  const outbox = createOutbox({ store });
  const enqueueOn = async (client: pg.ClientBase, messages: readonly Numbered[]): Promise<void> => {
    for (let from = 0; from < messages.length; from += 500) {
      await outbox.enqueue(client, messages.slice(from, from + 500).map(toMessage));
    }
  };
  const query = async <R extends Row>(sql: string, params: unknown[] = []): Promise<R[]> =>
    (await pool.query<R>(sql, params)).rows;
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => (closed ??= pool.end());
  return {
    url,
    pool,
    store,
    outbox,
    query,
    close,
    async enqueue(messages) {
      const client = await pool.connect();
      try {
        await client.query("begin");
        await enqueueOn(client, messages);
        await client.query("commit");
      } finally {
        client.release();
      }
    },
    async connect() {
      const client = new pg.Client({ connectionString: url });
      client.on("error", () => undefined);
      await client.connect();
      return {
        client,
        query: async (sql) => void (await client.query(sql)),
        enqueue: (messages) => enqueueOn(client, messages),
        [Symbol.asyncDispose]: () => client.end(),
      };
    },
    async value(sql, params) {
      const [row] = await query(sql, params);
      return Object.values(row ?? {})[0];
    },
    async [Symbol.asyncDispose]() {
      await close();
      await database?.drop();
    },
  };
}

function toMessage({ key, ...payload }: Numbered): NewMessage {
  return { stream: "orders", type: "changed", payload: { key, ...payload }, ...(key === null ? {} : { key }) };
}

/** `count` messages of one key, numbered from 1. */
export function series(key: string, count: number, from = 1): Numbered[] {
  return Array.from({ length: count }, (_, i) => ({ key, n: from + i }));
}
