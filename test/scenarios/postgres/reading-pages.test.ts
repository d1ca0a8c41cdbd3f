import pg from "pg";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Message, NewMessage } from "../../../src/core/message.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { PgPool } from "../../../src/stores/postgres/postgres-client.ts";
import { hasPostgres } from "../../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase } from "../support/outbox-database.ts";

const message = (fields: Partial<NewMessage>): NewMessage => ({ stream: "s", type: "t", payload: {}, ...fields });

const VARIETY: readonly NewMessage[] = [
  message({ payload: { text: 'ünï "quoted" \\ back\tslash 🦆 \u2028' } }),
  message({ key: "k\\1", stream: "ström", type: "tÿpe", aggregateType: "order", aggregateId: "o'1" }),
  message({ payload: new Uint8Array([0, 1, 255, 92, 10, 9]) }),
  message({ payload: new Uint8Array(0) }),
  message({ payload: null }),
  message({ payload: "" }),
  message({ key: " ", headers: { correlationId: "c-1", note: "héader", n: 1 } }),
  message({ payload: { large: "x".repeat(5000) }, headers: { note: "with headers", correlationId: "c-2" } }),
  message({ headers: { large: "y".repeat(5000) } }),
  message({ payload: new Uint8Array(5000).fill(7) }),
  ...Array.from({ length: 40 }, (_, n) => message({ key: `k${n % 3}`, payload: { n, pad: "é".repeat(n * 20) } })),
];

const shown = ({ id, position, stream, type, key, aggregateType, aggregateId, headers, body, createdAt }: Message) => ({
  id,
  position,
  stream,
  type,
  key,
  aggregateType,
  aggregateId,
  headers,
  body: typeof body === "string" ? body : Buffer.from(body).toString("hex"),
  createdAt: createdAt.getTime(),
});

interface WatchedQuery {
  text: string;
  callback?: (this: void, ...answer: unknown[]) => void;
}

interface WatchedClient {
  query(...args: unknown[]): unknown;
  readonly _queryQueue: WatchedQuery[];
  readonly _activeQuery: WatchedQuery | null;
}

/** What tracers and loggers do to the clients of node-postgres. */
const WATCHES: Record<string, (client: WatchedClient) => void> = {
  "the end of it, by its callback"(client) {
    const query = client.query.bind(client);
    client.query = (...args) => {
      const result = query(...args);
      const sent = client._queryQueue.at(-1) ?? client._activeQuery!;
      const { callback } = sent;
      if (callback === undefined) throw new TypeError("then is not a function");
      sent.callback = (...answer) => callback(...answer);
      return result;
    };
  },
  "a copy of it goes out, with a comment"(client) {
    const query = client.query.bind(client);
    client.query = (first, ...rest) => {
      const config = first as WatchedQuery;
      return query(typeof first === "string" ? first : { ...config, text: `${config.text} /* watched */` }, ...rest);
    };
  },
  "its answer is waited for"(client) {
    const query = client.query.bind(client);
    client.query = async (...args) => {
      const result: unknown = await query(...args);
      return result;
    };
  },
};

describe.skipIf(!hasPostgres())("pages of the log", () => {
  let database: OutboxDatabase;

  beforeEach(async () => {
    database = await outboxDatabase();
    const client = await database.pool.connect();
    try {
      await client.query("begin");
      await database.outbox.enqueue(client, VARIETY);
      await client.query("update txbox.message set created_at = '1999-12-31 23:59:59.9994Z' where position % 2 = 0");
      await client.query("commit");
    } finally {
      client.release(true);
    }
  });
  afterEach(() => database[Symbol.asyncDispose]());

  async function read(client: PgPool, batch: { batchSize: number; batchBytes?: number }): Promise<Message[]> {
    const messages: Message[] = [];
    const relay = createRelay({
      store: createPostgresStore({ client }),
      name: `reader-${crypto.randomUUID()}`,
      publisher: {
        keepsKeyOrder: true,
        publish(batch) {
          messages.push(...batch);
          return Promise.resolve(batch.map(() => ({ status: "published" as const })));
        },
      },
      maintenance: false,
      ...batch,
    });
    await relay.drainOnce();
    return messages;
  }

  /** A client that cannot copy, like that of libpq. */
  const withoutCopy = (): PgPool => ({
    query: (config) => database.pool.query(config as never),
    connect: async () => {
      const client = await database.pool.connect();
      return new Proxy(client, {
        has: (target, name) => name !== "connection" && Reflect.has(target, name),
        get(target, name) {
          const value: unknown = Reflect.get(target, name);
          return typeof value === "function" ? (value.bind(target) as unknown) : value;
        },
      });
    },
    get totalCount() {
      return database.pool.totalCount;
    },
  });

  const bodies = (messages: readonly Message[]) => messages.map(({ body }) => Buffer.from(body).toString("hex"));

  /** Reads everything by a pool of its own. */
  async function readBy(config: object, watch: (client: WatchedClient) => void = () => undefined): Promise<Message[]> {
    const pool = new pg.Pool({ connectionString: database.url, ...config });
    pool.on("connect", (client) => watch(client as unknown as WatchedClient));
    try {
      return await read(pool, { batchSize: 7 });
    } finally {
      await pool.end();
    }
  }

  it.each(Object.entries(WATCHES))("hold the same messages when every query is watched: %s", async (_, watch) => {
    expect(bodies(await readBy({}, watch))).toEqual(bodies(await read(database.pool, { batchSize: 7 })));
  });

  it("hold the same messages by connections that pipeline", async () => {
    expect(bodies(await readBy({ pipeline: true }))).toEqual(bodies(await read(database.pool, { batchSize: 7 })));
  });

  it("leave no timer behind where queries have a timeout", async () => {
    const started = vi.spyOn(globalThis, "setTimeout");
    const ended = vi.spyOn(globalThis, "clearTimeout");
    try {
      await readBy({ query_timeout: 54_321 });
      const timers = started.mock.results.filter((_, i) => started.mock.calls[i]![1] === 54_321);
      const cleared = new Set(ended.mock.calls.map(([timer]) => timer as unknown));
      expect(timers.length).toBeGreaterThan(0);
      expect(timers.filter(({ value }) => !cleared.has(value))).toEqual([]);
    } finally {
      vi.restoreAllMocks();
    }
  });

  it.each([
    [{ batchSize: 1000 }],
    [{ batchSize: 7 }],
    [{ batchSize: 7, batchBytes: 1500 }],
    [{ batchSize: 1000, batchBytes: 3000 }],
    [{ batchSize: 1 }],
  ])("hold the same messages, copied or row by row: %j", async (batch) => {
    const copied = (await read(database.pool, batch)).map(shown);
    expect(copied).toHaveLength(VARIETY.length);
    expect(copied.map(({ body }) => body)).toEqual(
      VARIETY.map(({ payload }) =>
        payload instanceof Uint8Array ? Buffer.from(payload).toString("hex") : JSON.stringify(payload),
      ),
    );
    expect((await read(withoutCopy(), batch)).map(shown)).toEqual(copied);
  });
});
