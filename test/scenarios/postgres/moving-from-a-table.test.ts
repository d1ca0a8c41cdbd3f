import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { describe, expect, test } from "vitest";
import { defineEvents } from "../../../src/core/event-map.ts";
import { publishEach } from "../../../src/core/publish-each.ts";
import { createOutbox } from "../../../src/outbox/outbox.ts";
import { createRelay } from "../../../src/relay/relay.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import { until } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { documentedBlock } from "../../support/documented-block.ts";
import { inTransaction } from "../../support/in-transaction.ts";

const PAGE = "docs/moving-from-a-table.md";
const sql = (text: string): string => documentedBlock(PAGE, "sql", text);
const LEFT_OVER = sql("left_over");
const KEYS = Array.from({ length: 12 }, (_, i) => `order-${i}`);
const WRITERS = 5;

type Events = { moved: { n: number } };
type Way = "insert" | "enqueue";

/** Writers that lock the row of an order, write about it in the way that they are told, and roll some of it back. */
class Shop {
  readonly committed = new Map<string, number[]>(KEYS.map((key) => [key, []]));
  ways: readonly Way[] = ["insert"];
  readonly #pool: pg.Pool;
  readonly #stopping = new AbortController();
  readonly #writers: Promise<void>[];
  rolledBack = 0;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
    const outbox = createOutbox({ store: createPostgresStore({ client: pool }), events: defineEvents<Events>() });
    const write = async (tx: pg.PoolClient, way: Way, key: string, n: number): Promise<unknown> =>
      way === "enqueue"
        ? outbox.enqueue(tx, { stream: "orders", type: "moved", key, payload: { n } })
        : tx.query("insert into outbox (topic, type, key, payload) values ('orders', 'moved', $1, $2)", [key, { n }]);
    this.#writers = Array.from({ length: WRITERS }, async (_, writer) => {
      for (let turn = writer; !this.#stopping.signal.aborted; turn++) {
        const key = KEYS[(turn * 7 + writer) % KEYS.length]!;
        const way = this.ways[turn % this.ways.length]!;
        await this.#order(key, turn, (tx, n) => write(tx, way, key, n));
        await sleep(2);
      }
    });
    for (const writer of this.#writers) writer.catch(() => undefined);
  }

  get total(): number {
    return [...this.committed.values()].reduce((sum, { length }) => sum + length, 0);
  }

  async more(messages: number): Promise<void> {
    const enough = this.total + messages;
    await until(() => this.total >= enough, { what: "more messages", timeoutMs: 60_000 });
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#writers);
  }

  async #order(key: string, turn: number, write: (tx: pg.PoolClient, n: number) => Promise<unknown>): Promise<void> {
    const client = await this.#pool.connect();
    try {
      await client.query("begin");
      const { rows } = await client.query<{ n: number }>("update orders set n = n + 1 where id = $1 returning n", [
        key,
      ]);
      await write(client, rows[0]!.n);
      if (turn % 11 === 0) await sleep(30); // a transaction that is open while the trigger is made
      if (turn % 5 === 0) {
        await client.query("rollback");
        this.rolledBack += 1;
        return;
      }
      // Noted before another writer can lock the order: numbers of a key are noted in the order of their commits.
      this.committed.get(key)!.push(rows[0]!.n);
      await client.query("commit");
    } finally {
      client.release();
    }
  }
}

/** The worker that is to go: a page at a time, in the order of ids, marked after it was sent. */
async function oldWorker(pool: pg.Pool, send: (key: string, n: number) => void, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const sent = await inTransaction(pool, async (tx) => {
      const { rows } = await tx.query<{ id: string; key: string; payload: { n: number } }>(
        "select id, key, payload from outbox where processed_at is null order by id limit 20 for update skip locked",
      );
      for (const { key, payload } of rows) send(key, payload.n);
      await tx.query("update outbox set processed_at = now() where id = any($1)", [rows.map(({ id }) => id)]);
      return rows.length;
    });
    await sleep(sent === 0 ? 10 : 20);
  }
}

async function makeTrigger(pool: pg.Pool): Promise<void> {
  await pool.query(sql("create function outbox_to_txbox"));
  const create = sql("create trigger outbox_to_txbox");
  await until(
    async () => {
      const client = await pool.connect();
      try {
        await client.query(create);
        return true;
      } catch (error) {
        await client.query("rollback");
        if ((error as { code?: string }).code !== "55P03") throw error; // as the page says: try again
        return false;
      } finally {
        client.release();
      }
    },
    { what: "the trigger", timeoutMs: 60_000 },
  );
}

describe.skipIf(!hasPostgres())("moving over from an outbox table", () => {
  test("loses nothing, doubles nothing and keeps the order of keys while writers go on", async () => {
    await using database = await testDatabase();
    const pool = new pg.Pool({ connectionString: database.url, max: WRITERS + 8 });
    const received = new Map<string, number[]>(KEYS.map((key) => [key, []]));
    const ids = new Set<string>();
    const take = (key: string, n: number): void => void received.get(key)!.push(n);
    const store = createPostgresStore({ client: pool });
    const relay = createRelay({
      store,
      name: "to-broker",
      publisher: publishEach(async ({ id, key, body }) => {
        ids.add(id);
        take(key!, (JSON.parse(String(body)) as { n: number }).n);
      }),
    });
    const worker = new AbortController();
    const leftOver = async (): Promise<number> => Number((await pool.query(LEFT_OVER)).rows[0].left_over);
    try {
      await pool.query("create table orders (id text primary key, n int not null default 0)");
      await pool.query("insert into orders (id) select unnest($1::text[])", [KEYS]);
      await pool.query(sql("create table outbox"));
      const shop = new Shop(pool);
      const working = oldWorker(pool, take, worker.signal);
      await shop.more(150);

      await store.migrator.migrate();
      await makeTrigger(pool);
      const byWorker = (): number => [...received.values()].reduce((sum, { length }) => sum + length, 0);
      await until(async () => (await leftOver()) === 0, { what: "nothing is left over", timeoutMs: 60_000 });
      await shop.more(100);
      expect(await leftOver()).toBe(0);
      const old = byWorker();
      worker.abort();
      await working;
      expect(byWorker(), "the old worker sends nothing that came after the trigger").toBe(old);

      await relay.start();
      await shop.more(100);
      shop.ways = ["insert", "enqueue", "enqueue"]; // a deploy that is on its way
      await shop.more(150);
      shop.ways = ["enqueue"];
      await shop.more(50);
      await shop.stop();
      await until(() => byWorker() >= shop.total, { what: "everything is sent", timeoutMs: 60_000 });
      await relay.stop();

      expect(shop.rolledBack).toBeGreaterThan(20);
      expect(old).toBeGreaterThan(100);
      expect([...ids].filter((id) => id.startsWith("outbox-")).length).toBeGreaterThan(200);
      expect(Object.fromEntries(received)).toEqual(Object.fromEntries(shop.committed));

      await pool.query(sql("drop table outbox"));
    } finally {
      worker.abort();
      await relay.stop();
      await pool.end();
    }
  });
});
