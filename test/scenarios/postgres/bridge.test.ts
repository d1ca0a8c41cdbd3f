import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createInbox, createOutbox } from "../../../src/index.ts";
import { createPostgresStore } from "../../../src/stores/postgres/index.ts";
import type { TestDatabase } from "../../harness/index.ts";
import { hasPostgres, migratedDatabase } from "../../harness/shared-postgres.ts";
import { fromSmallOrm, SmallOrm, type SmallTransaction } from "../../support/small-orm.ts";

const message = (id: string) => ({
  id,
  stream: "orders",
  type: "order_created",
  key: id,
  position: 1n,
  headers: {},
  body: "{}",
});

describe.skipIf(!hasPostgres())("an ORM as the client of a store", () => {
  let database: TestDatabase;
  let pool: pg.Pool;
  let orm: SmallOrm;

  beforeEach(async () => {
    database = await migratedDatabase();
    pool = new pg.Pool({ connectionString: database.url });
    pool.on("error", () => undefined);
    orm = new SmallOrm(pool);
    await pool.query("create table effect (id text primary key deferrable initially deferred)");
  });
  afterEach(async () => {
    await pool.end();
    await database.drop();
  });

  const setUp = (handlerTimeoutMs = 30_000) => {
    const store = createPostgresStore({ client: fromSmallOrm(orm, pool) });
    return {
      store,
      outbox: createOutbox({ store }),
      inbox: createInbox({ store, consumer: "payments", handlerTimeoutMs }),
    };
  };
  const count = async (table: string): Promise<number> =>
    Number((await pool.query<{ n: string }>(`select count(*) as n from ${table}`)).rows[0]?.n);
  const effect = (tx: SmallTransaction, id: string) => tx.run("insert into effect (id) values ($1)", [id]);
  const receipts = () => count("txbox.receipt where status = 'processed'");

  test("is told of the commit when it has happened", async () => {
    const seen: number[] = [];
    orm.onCommit = async () => void seen.push(await receipts());
    await setUp().inbox.handle(message("m-1"), async (tx: SmallTransaction) => void (await effect(tx, "e-1")));
    expect(seen).toEqual([1]);
    expect(await count("effect")).toBe(1);
  });

  test("is told that a commit has failed, and the message fails", async () => {
    await pool.query("insert into effect (id) values ('there')");
    orm.onCommit = () => Promise.reject(new Error("believed in a commit that was none"));
    const { inbox } = setUp();
    const handled = inbox.handle(message("m-1"), async (tx: SmallTransaction) => void (await effect(tx, "there")));
    await expect(handled).rejects.toMatchObject({ code: "23505" });
    expect([await count("effect"), await receipts()]).toEqual([1, 0]);
  });

  test("may fail after the commit: the message is handled", async () => {
    orm.onCommit = () => Promise.reject(new Error("a hook"));
    const handled = setUp().inbox.handle(
      message("m-1"),
      async (tx: SmallTransaction) => void (await effect(tx, "e-1")),
    );
    expect(await handled).toBe("processed");
    expect([await count("effect"), await receipts()]).toEqual([1, 1]);
  });

  test("may hide why the server gave up a transaction: it is still run again", async () => {
    let runs = 0;
    const { inbox } = setUp();
    await inbox.handle(message("m-1"), async (tx: SmallTransaction) => {
      runs++;
      if (runs > 1) return;
      await tx.run("do $$ begin raise exception 'no' using errcode = '40001'; end $$");
    });
    expect(runs).toBe(2);
    expect(await receipts()).toBe(1);
  });

  test("cannot end the transaction of a handler", async () => {
    const { inbox } = setUp();
    for (const text of ["COMMIT", "ROLLBACK", "BEGIN"]) {
      const handled = inbox.handle(message(text), async (tx: SmallTransaction) => {
        await effect(tx, text);
        await tx.run(text);
      });
      await expect(handled).rejects.toMatchObject({ code: "no_transaction" });
    }
    expect([await count("effect"), await receipts()]).toEqual([0, 0]);
  });

  test("that has another pool is refused, and nothing is written", async () => {
    const other = new pg.Pool({ connectionString: database.url });
    const store = createPostgresStore({ client: fromSmallOrm(new SmallOrm(other), pool) });
    const inbox = createInbox({ store, consumer: "payments" });
    const handled = inbox.handle(message("m-1"), async (tx: SmallTransaction) => void (await effect(tx, "e-1")));
    await expect(handled).rejects.toMatchObject({ code: "invalid_option", field: "client" });
    expect([await count("effect"), await receipts()]).toEqual([0, 0]);
    await other.end();
  });

  test("has a connection of its own beside the transaction of a handler", async () => {
    const { inbox } = setUp();
    await inbox.handle(message("m-1"), async (tx: SmallTransaction) => {
      await effect(tx, "e-1");
      await orm.transaction((own) => effect(own, "own"));
      expect(await count("effect")).toBe(1);
    });
    expect(await count("effect")).toBe(2);
  });

  test("a handler that hangs is given up, and what it does later is refused", async () => {
    const { inbox } = setUp(300);
    const late = Promise.withResolvers<unknown>();
    const handled = inbox.handle(message("m-1"), async (tx: SmallTransaction) => {
      await effect(tx, "e-1");
      await tx.run("select pg_sleep(60)").catch(() => undefined);
      await effect(tx, "late").then(late.resolve, late.resolve);
    });
    await expect(handled).rejects.toMatchObject({ code: "handler_timeout" });
    expect(await late.promise).toMatchObject({ code: "no_transaction" });
    expect([await count("effect"), await receipts()]).toEqual([0, 0]);
    const sleeping = await pool.query(
      "select from pg_stat_activity where query like '%pg_sleep(60)%' and pid <> pg_backend_pid()",
    );
    expect(sleeping.rowCount).toBe(0);
  });

  test("a connection that is lost in a handler costs no attempt", async () => {
    const { inbox, outbox } = setUp();
    const handled = inbox.handle(message("m-1"), async (tx: SmallTransaction) => {
      await outbox.enqueue(tx, { stream: "s", type: "t", payload: 1 });
      await tx.run("select pg_terminate_backend(pg_backend_pid())");
    });
    await expect(handled).rejects.toMatchObject({ code: "57P01" });
    expect([await count("txbox.message"), await receipts()]).toEqual([0, 0]);
  });
});
