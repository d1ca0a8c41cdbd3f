import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createInbox } from "../../../src/inbox/inbox.ts";
import { createPostgresStore, type PostgresStore } from "../../../src/stores/postgres/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, testDatabase } from "../../harness/shared-postgres.ts";
import { incoming } from "../../support/inbox-delivery.ts";

type Answer = Promise<{ error?: unknown; rows?: unknown[] }>;
type Ask = (tx: pg.PoolClient, text: string) => Answer;

const answer = (begin: (callback: (error: unknown, result?: { rows: unknown[] }) => void) => unknown): Answer =>
  new Promise((resolve) => {
    const returned = begin((error, result) => resolve(error == null ? { rows: result?.rows ?? [] } : { error }));
    // Knex and Sequelize look at the callback only: no code would handle a promise beside it.
    expect(returned === undefined || returned instanceof pg.Query).toBe(true);
  });

/** Every way in which node-postgres can be asked. */
const WAYS: [name: string, ask: Ask][] = [
  ["text and callback", (tx, text) => answer((callback) => tx.query(text, callback))],
  ["text, values and callback", (tx, text) => answer((callback) => tx.query(text, [], callback))],
  ["config and callback", (tx, text) => answer((callback) => tx.query({ text } as never, callback))],
  ["config, values and callback", (tx, text) => answer((callback) => tx.query({ text } as never, [], callback))],
  ["config with a callback", (tx, text) => answer((callback) => tx.query({ text, callback } as never))],
  [
    "a query object with a callback",
    (tx, text) => answer((callback) => tx.query(new pg.Query(text, callback as never))),
  ],
  [
    "a query object and a callback",
    (tx, text) => answer((callback) => tx.query(new pg.Query(text) as never, callback)),
  ],
  [
    "a query object that emits",
    (tx, text) =>
      new Promise((resolve) => {
        const query = tx.query(new pg.Query(text));
        query.on("error", (error) => resolve({ error }));
        query.on("end", (result) => resolve({ rows: result.rows }));
      }),
  ],
  [
    "a promise",
    (tx, text) =>
      tx.query(text).then(
        ({ rows }) => ({ rows }),
        (error: unknown) => ({ error }),
      ),
  ],
];

describe.skipIf(!hasPostgres())("a handler that asks node-postgres by", () => {
  let base: TestDatabase;
  let pool: pg.Pool;
  let store: PostgresStore<pg.PoolClient>;

  beforeAll(async () => {
    base = await testDatabase();
    pool = new pg.Pool({ connectionString: base.url });
    store = createPostgresStore({ client: pool });
    await store.migrator.migrate();
  });
  afterAll(async () => {
    await pool.end();
    await base.drop();
  });

  it.each(WAYS)("%s is answered in the same way, also when it is refused", async (_, ask) => {
    const inbox = createInbox({ store, consumer: "payments" });
    let left: pg.PoolClient | undefined;
    await inbox.handle(incoming(), async (tx) => {
      left = tx;
      expect(await ask(tx, "commit")).toMatchObject({ error: { code: "no_transaction" } });
      expect(await ask(tx, "set application_name = 'x'")).toMatchObject({ error: { code: "no_transaction" } });
      expect(await ask(tx, "select 1 as n")).toEqual({ rows: [{ n: 1 }] });
    });
    expect(await ask(left!, "select 1")).toMatchObject({ error: { code: "no_transaction" } });
  });
});
