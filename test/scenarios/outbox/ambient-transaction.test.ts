import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createOutbox } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, migratedDatabase } from "../../harness/shared-postgres.ts";
import { inTransaction } from "../../support/in-transaction.ts";

describe.skipIf(!hasPostgres())("withTransaction and enqueueHere", () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  const transaction = <T>(run: (tx: pg.PoolClient) => Promise<T>): Promise<T> => inTransaction(pool, run);
  const open = (schema?: string) =>
    createOutbox({ store: createPostgresStore(schema === undefined ? { client: pool } : { client: pool, schema }) });
  let outbox: ReturnType<typeof open>;
  let elsewhere: ReturnType<typeof open>;

  beforeAll(async () => {
    database = await migratedDatabase();
    pool = new pg.Pool({ connectionString: database.url });
    [outbox, elsewhere] = [open(), open("other")];
  });
  afterAll(async () => {
    await pool.end();
    await database.drop();
  });

  const message = (key: string) => ({ stream: "s", type: "t", key, payload: null });

  const written = async (key: string): Promise<number> =>
    (await pool.query("select from txbox.message where key = $1", [key])).rows.length;
  const refused = expect.objectContaining({ code: "no_transaction", field: "tx" });

  test.each([undefined, null, 5, message("f")])("withTransaction needs a function, not %j", async (run) => {
    await expect(transaction((tx) => outbox.withTransaction(tx, run as never))).rejects.toMatchObject({
      code: "invalid_option",
      field: "run",
      fix: expect.stringContaining("outbox.withTransaction(tx, () => …)"),
    });
  });

  test("enqueueHere enqueues in the transaction around it, one message or many", async () => {
    const below = async () => [await outbox.enqueueHere(message("a")), await outbox.enqueueHere([message("a")])];
    const [one, many] = await transaction((tx) => outbox.withTransaction(tx, below));
    expect([one, many]).toEqual([
      { id: expect.any(String), duplicate: false },
      [{ id: expect.any(String), duplicate: false }],
    ]);
    expect(await written("a")).toBe(2);
  });

  test("what it enqueued goes with the transaction", async () => {
    const failing = transaction((tx) =>
      outbox.withTransaction(tx, async () => {
        await outbox.enqueueHere(message("b"));
        throw new Error("no");
      }),
    );
    await expect(failing).rejects.toThrow("no");
    expect(await written("b")).toBe(0);
  });

  test("outside it is refused", async () => {
    await expect(outbox.enqueueHere(message("c"))).rejects.toThrow(refused);
    await expect(outbox.withTransaction(undefined as never, async () => undefined)).rejects.toThrow(refused);
    expect(await written("c")).toBe(0);
  });

  test("after its end it is refused, though the context goes on", async () => {
    const go = Promise.withResolvers<void>();
    let late: Promise<unknown> | undefined;
    await transaction((tx) =>
      outbox.withTransaction(tx, async () => {
        late = go.promise.then(() => outbox.enqueueHere(message("d")));
      }),
    );
    go.resolve();
    await expect(late).rejects.toThrow(refused);
    expect(await written("d")).toBe(0);
  });

  test("the transaction of another store is not taken", async () => {
    await transaction((tx) =>
      outbox.withTransaction(tx, async () => {
        await expect(elsewhere.enqueueHere(message("e"))).rejects.toThrow(refused);
        await elsewhere.withTransaction(tx, async () => void (await outbox.enqueueHere(message("e"))));
      }),
    );
    expect(await written("e")).toBe(1);
  });

  test("the innermost one counts, and is over with its own function", async () => {
    const idle = await pool.connect();
    await transaction((tx) =>
      outbox.withTransaction(tx, async () => {
        await outbox.withTransaction(idle, async () => {
          await expect(outbox.enqueueHere(message("f"))).rejects.toThrow(refused);
        });
        await outbox.enqueueHere(message("f"));
      }),
    );
    idle.release();
    expect(await written("f")).toBe(1);
  });
});
