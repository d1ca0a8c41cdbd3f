import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Message, NewMessage } from "../../src/core/message.ts";
import { createRelay } from "../../src/relay/relay.ts";
import { createPostgresStore } from "../../src/stores/postgres/index.ts";
import type { PgPool } from "../../src/stores/postgres/postgres-client.ts";
import { hasPostgres } from "../harness/shared-postgres.ts";
import { outboxDatabase, type OutboxDatabase } from "./support/outbox-database.ts";

const message = (fields: Partial<NewMessage>): NewMessage => ({ stream: "s", type: "t", payload: {}, ...fields });

const VARIETY: readonly NewMessage[] = [
  message({ payload: { text: 'ünï "quoted" \\ back\tslash 🦆 \u2028' } }),
  message({ key: "k\\1", stream: "ström", type: "tÿpe", aggregateType: "order", aggregateId: "o'1" }),
  message({ payload: new Uint8Array([0, 1, 255, 92, 10, 9]) }),
  message({ payload: new Uint8Array(0) }),
  message({ payload: null }),
  message({ payload: "" }),
  message({ key: " ", headers: { correlationId: "c-1", note: "héader", n: 1 } }),
  message({ payload: { large: "x".repeat(5000) } }),
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

describe.skipIf(!hasPostgres())("pages of the log", () => {
  let database: OutboxDatabase;

  beforeEach(async () => {
    database = await outboxDatabase();
    const client = await database.pool.connect();
    try {
      await client.query("begin");
      await database.outbox.enqueue(client, VARIETY);
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
